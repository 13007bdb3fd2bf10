package streamproof.kafka;

/** A transaction that was to be committed no longer can be: it timed out, was fenced, or is unknown. */
final class TransactionLost extends RuntimeException {
    TransactionLost(String message) {
        super(message);
    }
}
