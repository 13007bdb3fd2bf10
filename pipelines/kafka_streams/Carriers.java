import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

/** How many flights each carrier has had, and how many miles: state in RocksDB, with a changelog in Kafka unless LOGGING is off. */
public final class Carriers {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("STREAMPROOF_GROUP"));
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("STREAMPROOF_BOOTSTRAP_SERVERS"));
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, System.getenv("GUARANTEE"));
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, System.getenv("COMMIT_INTERVAL_MS"));
        properties.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, System.getenv().getOrDefault("STANDBYS", "0"));
        properties.put(
                StreamsConfig.STATE_DIR_CONFIG,
                Path.of(System.getenv("STREAMPROOF_STATE_FOLDER"), "streams-" + System.getenv("STREAMPROOF_INSTANCE")).toString());
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        properties.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
        properties.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "1500");
        properties.put(StreamsConfig.consumerPrefix("max.poll.records"), "200");

        Materialized<String, String, KeyValueStore<Bytes, byte[]>> totals =
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("totals").withKeySerde(Serdes.String()).withValueSerde(Serdes.String());
        if ("off".equals(System.getenv("LOGGING"))) {
            totals = totals.withLoggingDisabled();
        }
        StreamsBuilder topology = new StreamsBuilder();
        topology.stream(System.getenv("STREAMPROOF_INPUT_TOPIC"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .map((key, value) -> flight(value))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
                .aggregate(() -> "0,0", (carrier, miles, total) -> added(total, miles), totals)
                .toStream()
                .mapValues((carrier, total) -> result(carrier, total))
                .to(System.getenv("STREAMPROOF_OUTPUT_TOPIC"), Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(topology.build(), properties);
        streams.setGlobalStateRestoreListener(new Restored(Path.of(System.getenv("STREAMPROOF_STATE_FOLDER"), "restored.jsonl")));
        streams.setUncaughtExceptionHandler(thrown -> StreamThreadExceptionResponse.REPLACE_THREAD);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(8))));
        streams.start();
    }

    /** Writes a line for each partition of the changelog that an instance has read in order to take over a task. */
    private record Restored(Path file) implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long to, long records) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long records) {
            String line = String.format(
                    "{\"instance\": %s, \"partition\": %d, \"records\": %d}%n",
                    System.getenv("STREAMPROOF_INSTANCE"), partition.partition(), records);
            try {
                Files.writeString(file, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException full) {
                throw new UncheckedIOException(full);
            }
        }
    }

    private static KeyValue<String, Long> flight(byte[] value) {
        try {
            JsonNode flight = JSON.readTree(value);
            return KeyValue.pair(flight.get("carrier").asText(), flight.get("distance").asLong());
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
    }

    private static String added(String total, long miles) {
        String[] parts = total.split(",");
        return (Long.parseLong(parts[0]) + 1) + "," + (Long.parseLong(parts[1]) + miles);
    }

    private static String result(String carrier, String total) {
        String[] parts = total.split(",");
        return "{\"carrier\":\"" + carrier + "\",\"flights\":" + parts[0] + ",\"miles\":" + parts[1] + "}";
    }
}
