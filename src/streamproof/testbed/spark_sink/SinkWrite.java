package streamproof.kafka;

import java.util.Arrays;
import java.util.List;
import java.util.function.Supplier;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/** The write of one micro-batch. Every output mode appends, as in Spark's own Kafka sink. */
final class SinkWrite implements SupportsTruncate, SupportsStreamingUpdateAsAppend, Write, StreamingWrite {
    private final SinkOptions options;
    private final Columns columns;
    private final Supplier<Committer> committer;

    SinkWrite(SinkOptions options, Columns columns, Supplier<Committer> committer) {
        this.options = options;
        this.columns = columns;
        this.committer = committer;
    }

    @Override
    public WriteBuilder truncate() {
        return this;
    }

    @Override
    public Write build() {
        return this;
    }

    @Override
    public StreamingWrite toStreaming() {
        return this;
    }

    /** A transaction that no message names is never committed, so Spark need not ask its driver which attempt of a task may commit. */
    @Override
    public boolean useCommitCoordinator() {
        return false;
    }

    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
        Committer driver = committer.get();
        return new WriterFactory(options, columns, driver.prefix(), driver.lastDecided());
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] messages) {
        committer.get().commit(batch, prepared(messages));
    }

    @Override
    public void abort(long batch, WriterCommitMessage[] messages) {
        committer.get().abort(batch);
    }

    private static List<Prepared> prepared(WriterCommitMessage[] messages) {
        return Arrays.stream(messages).filter(Prepared.class::isInstance).map(Prepared.class::cast).filter(Prepared::exists).toList();
    }
}
