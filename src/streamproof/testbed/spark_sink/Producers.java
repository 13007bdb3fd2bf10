package streamproof.kafka;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The producers of this JVM, kept from batch to batch.
 *
 * <p>A batch begins when the one before it is committed. A producer that was last used in an earlier batch therefore has no transaction that
 * may still be committed: it asks for a new epoch, which aborts what nobody decided about and fences every late request of the last
 * transaction. A producer of the same batch may be prepared, and is left alone.
 */
final class Producers {
    private static final String JVM = UUID.randomUUID().toString().substring(0, 8);
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static final Map<String, ArrayDeque<Used>> IDLE = new HashMap<>();

    private record Used(TransactionalProducer producer, long batch) {}

    private Producers() {}

    /** A producer that holds its id and has no transaction. */
    static TransactionalProducer take(SinkOptions options, String prefix, long batch) throws IOException {
        TransactionalProducer idle = idle(prefix, batch);
        if (idle != null && idle.renew()) {
            return idle;
        }
        return new TransactionalProducer(options.producer(prefix + JVM + "." + COUNT.getAndIncrement()));
    }

    private static synchronized TransactionalProducer idle(String prefix, long batch) {
        Used first = IDLE.getOrDefault(prefix, new ArrayDeque<>()).peekFirst();
        return first != null && first.batch < batch ? IDLE.get(prefix).removeFirst().producer : null;
    }

    static synchronized void giveBack(String prefix, TransactionalProducer producer, long batch) {
        if (!IDLE.containsKey(prefix)) {
            closeOfEarlierStarts(prefix);
        }
        IDLE.computeIfAbsent(prefix, begin -> new ArrayDeque<>()).addLast(new Used(producer, batch));
    }

    /** This JVM may outlive a query that is started again. */
    private static void closeOfEarlierStarts(String prefix) {
        String query = prefix.substring(0, prefix.lastIndexOf('.', prefix.length() - 2) + 1);
        IDLE.entrySet().removeIf(other -> {
            boolean same = other.getKey().startsWith(query);
            if (same) {
                other.getValue().forEach(used -> used.producer.close());
            }
            return same;
        });
    }
}
