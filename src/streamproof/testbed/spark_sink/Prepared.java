package streamproof.kafka;

import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** A prepared transaction: everything that EndTxn needs. A task without records has none. */
record Prepared(String transactionalId, long producerId, short epoch) implements WriterCommitMessage {
    static final Prepared NOTHING = new Prepared("", -1, (short) -1);

    boolean exists() {
        return !transactionalId.isEmpty();
    }
}
