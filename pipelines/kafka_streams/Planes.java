import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
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
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.rocksdb.Options;

/**
 * How many flights each plane has had: thousands of keys, most of them seldom seen. The store is not cached, and RocksDB has a buffer of 64 KB,
 * so that it writes to its files in the middle of a transaction, as one of the usual size does under more load.
 */
public final class Planes {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Small buffers. */
    public static final class Small implements RocksDBConfigSetter {
        @Override
        public void setConfig(String store, Options options, Map<String, Object> properties) {
            options.setWriteBufferSize(64 * 1024);
        }

        @Override
        public void close(String store, Options options) {}
    }

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("STREAMPROOF_GROUP"));
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("STREAMPROOF_BOOTSTRAP_SERVERS"));
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, System.getenv("COMMIT_INTERVAL_MS"));
        properties.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, Small.class);
        properties.put(
                StreamsConfig.STATE_DIR_CONFIG,
                Path.of(System.getenv("STREAMPROOF_STATE_FOLDER"), "streams-" + System.getenv("STREAMPROOF_INSTANCE")).toString());
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        properties.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
        properties.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "1500");
        properties.put(StreamsConfig.consumerPrefix("max.poll.records"), "200");

        StreamsBuilder topology = new StreamsBuilder();
        topology.stream(System.getenv("STREAMPROOF_INPUT_TOPIC"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .map((key, value) -> KeyValue.pair(plane(value), ""))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
                .aggregate(
                        () -> 0L,
                        (plane, flight, flights) -> flights + 1,
                        Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("planes")
                                .withKeySerde(Serdes.String())
                                .withValueSerde(Serdes.Long())
                                .withCachingDisabled())
                .toStream()
                .mapValues((plane, flights) -> "{\"plane\":\"" + plane + "\",\"flights\":" + flights + "}")
                .to(System.getenv("STREAMPROOF_OUTPUT_TOPIC"), Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(topology.build(), properties);
        streams.setUncaughtExceptionHandler(thrown -> StreamThreadExceptionResponse.REPLACE_THREAD);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(8))));
        streams.start();
    }

    private static String plane(byte[] value) {
        try {
            JsonNode plane = JSON.readTree(value).get("tailnum");
            return plane == null || plane.isNull() ? "" : plane.asText();
        } catch (IOException unreadable) {
            throw new UncheckedIOException(unreadable);
        }
    }
}
