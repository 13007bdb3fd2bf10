package streamproof.kafka;

import java.lang.ref.Cleaner;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/** One start of a query writes to one table. Spark asks it for a new write in each micro-batch, so what outlives a batch is kept here. */
final class SinkTable implements SupportsWrite {
    private static final Cleaner CLEANER = Cleaner.create();

    private final SinkOptions options;
    private Committer committer;

    SinkTable(SinkOptions options) {
        this.options = options;
    }

    @Override
    public String name() {
        return "streamproof-kafka";
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
        return new StructType();
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(TableCapability.STREAMING_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return new SinkWrite(options, Columns.of(info.schema(), options.topic()), () -> committer(info.queryId()));
    }

    /** The first write of a start finishes what earlier starts left. */
    private synchronized Committer committer(String queryId) {
        if (committer == null) {
            Committer made = new Committer(options, queryId);
            CLEANER.register(this, made::close); // Spark does not say when a query ends; its table goes then
            committer = made;
        }
        return committer;
    }
}
