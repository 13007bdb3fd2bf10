package streamproof.kafka;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;

/** A task's part: one transaction with the task's rows, flushed and left open. A task without rows opens none. */
final class TransactionWriter implements DataWriter<InternalRow> {
    private final WriterFactory factory;
    private final int partition;
    private final int attempt;
    private final long batch;
    private final Header origin;
    private TransactionalProducer producer;

    TransactionWriter(WriterFactory factory, int partition, long batch) {
        this.factory = factory;
        this.partition = partition;
        this.batch = batch;
        attempt = TaskContext.get().attemptNumber();
        String name = factory.options().originHeader();
        String value = factory.options().originStart() + "." + batch + "." + attempt;
        origin = name == null ? null : new RecordHeader(name, value.getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public void write(InternalRow row) throws IOException {
        if (producer == null) {
            producer = Producers.take(factory.options(), factory.prefix(), batch);
            producer.begin();
        }
        producer.send(factory.columns().record(row, origin));
    }

    @Override
    public Prepared commit() throws IOException {
        if (producer == null) {
            return Prepared.NOTHING;
        }
        Prepared prepared = producer.prepare();
        Failpoints.reach("after_prepare", batch, attempt, partition);
        Producers.giveBack(factory.prefix(), producer, batch);
        producer = null;
        return prepared;
    }

    @Override
    public void abort() {
        if (producer != null) {
            producer.abortAndClose();
            producer = null;
        }
    }

    @Override
    public void close() {
        abort();
    }
}
