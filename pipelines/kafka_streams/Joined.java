import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.processor.StreamPartitioner;

/**
 * A topic joined with a copy of itself, record by record: each comes out once. The copy has PARTITIONS partitions. With BY=record a copy lies
 * in the partition of its record, else where Kafka Streams puts its key.
 */
public final class Joined {
    private static final Serde<byte[]> BYTES = Serdes.ByteArray();

    public static void main(String[] arguments) throws Exception {
        String servers = System.getenv("STREAMPROOF_BOOTSTRAP_SERVERS");
        String application = System.getenv("STREAMPROOF_GROUP");
        String input = System.getenv("STREAMPROOF_INPUT_TOPIC");
        String copy = application + "-copy-repartition"; // named as those that an application makes for itself
        int partitions = Integer.parseInt(System.getenv("PARTITIONS"));
        create(servers, copy, partitions);

        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200");
        properties.put(
                StreamsConfig.STATE_DIR_CONFIG,
                Path.of(System.getenv("STREAMPROOF_STATE_FOLDER"), "streams-" + System.getenv("STREAMPROOF_INSTANCE")).toString());
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        properties.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
        properties.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "1500");

        StreamsBuilder topology = new StreamsBuilder();
        KStream<byte[], byte[]> records = topology.stream(input, Consumed.with(BYTES, BYTES));
        Produced<byte[], byte[]> copied = Produced.with(BYTES, BYTES);
        records.to(copy, "record".equals(System.getenv("BY")) ? copied.withStreamPartitioner(new AsSent(partitions)) : copied);
        records.join(
                        topology.stream(copy, Consumed.with(BYTES, BYTES)),
                        (one, other) -> Arrays.equals(one, other) ? one : null,
                        JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(1)),
                        StreamJoined.with(BYTES, BYTES, BYTES))
                .filter((key, value) -> value != null)
                .to(System.getenv("STREAMPROOF_OUTPUT_TOPIC"), Produced.with(BYTES, BYTES));

        KafkaStreams streams = new KafkaStreams(topology.build(), properties);
        streams.setUncaughtExceptionHandler(thrown -> StreamThreadExceptionResponse.REPLACE_THREAD);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(8))));
        streams.start();
    }

    private static void create(String servers, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        } catch (java.util.concurrent.ExecutionException failed) {
            if (!(failed.getCause() instanceof TopicExistsException)) {
                throw failed;
            }
        }
    }

    /** Where the sender put the record: librdkafka's default partitioner, the CRC-32 of its key. */
    private static final class AsSent implements StreamPartitioner<byte[], byte[]> {
        private final int partitions;

        AsSent(int partitions) {
            this.partitions = partitions;
        }

        @Override
        public Optional<Set<Integer>> partitions(String topic, byte[] key, byte[] value, int count) {
            java.util.zip.CRC32 crc = new java.util.zip.CRC32();
            crc.update(key);
            return Optional.of(Set.of((int) (crc.getValue() % partitions)));
        }
    }
}
