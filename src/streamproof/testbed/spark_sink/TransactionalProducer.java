package streamproof.kafka;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Kafka's producer, whose transactions another process ends.
 *
 * <p>Kafka's producer has no method to forget a transaction that was prepared here and ended elsewhere (KIP-939 will bring one). Its state is
 * put back by reflection, as Flink's connector does. Where a field has another name, the producer is closed and made anew.
 *
 * <p>Checked against: kafka-clients 3.9.1 ({@code TransactionManager.completeTransaction}, {@code initializeTransactions}).
 */
final class TransactionalProducer {
    private static final Logger LOG = LoggerFactory.getLogger(TransactionalProducer.class);

    private final String id;
    private final KafkaProducer<byte[], byte[]> producer;
    private volatile Exception failure;

    TransactionalProducer(Map<String, Object> config) {
        id = (String) config.get("transactional.id");
        producer = new KafkaProducer<>(config);
        try {
            producer.initTransactions();
        } catch (RuntimeException error) {
            producer.close(Duration.ZERO);
            throw error;
        }
    }

    void begin() {
        producer.beginTransaction();
    }

    void send(ProducerRecord<byte[], byte[]> record) throws IOException {
        failIfFailed();
        producer.send(record, (metadata, error) -> {
            if (error != null) {
                failure = error;
            }
        });
    }

    /** Everything on the broker, or an exception: after this only EndTxn is missing. */
    Prepared prepare() throws IOException {
        producer.flush();
        failIfFailed();
        try {
            ProducerIdAndEpoch holder = (ProducerIdAndEpoch) field(manager(), "producerIdAndEpoch").get(manager());
            return new Prepared(id, holder.producerId, holder.epoch);
        } catch (ReflectiveOperationException error) {
            throw new IOException("this Kafka client does not show its producer id: streamproof-kafka needs kafka-clients 3.9", error);
        }
    }

    private void failIfFailed() throws IOException {
        if (failure != null) {
            throw new IOException("transaction " + id + " cannot be prepared: " + failure, failure);
        }
    }

    /** Take the id once more, with a new epoch: whatever is open is aborted, its late requests are fenced. False: it was closed instead. */
    boolean renew() {
        try {
            forgetTransaction();
            producer.initTransactions();
            return true;
        } catch (ReflectiveOperationException | KafkaException | IllegalStateException error) {
            LOG.warn("producer {} is made anew: {}", id, error.toString());
            producer.close(Duration.ZERO);
            return false;
        }
    }

    private void forgetTransaction() throws ReflectiveOperationException {
        Object manager = manager();
        Field state = field(manager, "currentState");
        Method complete = manager.getClass().getDeclaredMethod("completeTransaction");
        complete.setAccessible(true);
        synchronized (manager) {
            state.set(manager, constant(state.getType(), "COMMITTING_TRANSACTION"));
            complete.invoke(manager);
            state.set(manager, constant(state.getType(), "UNINITIALIZED"));
        }
    }

    private Object manager() throws ReflectiveOperationException {
        return field(producer, "transactionManager").get(producer);
    }

    private static Field field(Object of, String name) throws ReflectiveOperationException {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    private static Object constant(Class<?> type, String name) throws ReflectiveOperationException {
        for (Object each : type.getEnumConstants()) {
            if (((Enum<?>) each).name().equals(name)) {
                return each;
            }
        }
        throw new NoSuchFieldException(type + "." + name);
    }

    void close() {
        producer.close(Duration.ZERO);
    }

    /** Whatever cannot be aborted here is aborted by the driver, or times out. */
    void abortAndClose() {
        try {
            producer.abortTransaction();
        } catch (RuntimeException error) {
            LOG.warn("transaction {} was not aborted here: {}", id, error.toString());
        }
        producer.close(Duration.ZERO);
    }
}
