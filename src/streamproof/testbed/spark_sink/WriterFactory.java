package streamproof.kafka;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/** What the driver sends to each task of a batch. Batches up to {@code lastDecided} are not written again. */
record WriterFactory(SinkOptions options, Columns columns, String prefix, long lastDecided) implements StreamingDataWriterFactory {
    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long batch) {
        return batch <= lastDecided ? new DecidedWriter() : new TransactionWriter(this, partition, batch);
    }

    /** The batch runs again for Spark's state and watermark. Its output is committed. */
    private static final class DecidedWriter implements DataWriter<InternalRow> {
        @Override
        public void write(InternalRow row) {}

        @Override
        public Prepared commit() {
            return Prepared.NOTHING;
        }

        @Override
        public void abort() {}

        @Override
        public void close() {}
    }
}
