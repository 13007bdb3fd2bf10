package streamproof.kafka;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The format {@code streamproof-kafka}: what Spark's {@code kafka} format writes, in transactions. Exactly-once for read-committed readers. */
public final class SinkProvider implements TableProvider, DataSourceRegister {
    @Override
    public String shortName() {
        return "streamproof-kafka";
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return new StructType();
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new SinkTable(new SinkOptions(properties));
    }
}
