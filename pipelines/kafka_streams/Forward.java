import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/** From topic to topic on Kafka Streams, byte for byte, with the processing guarantee that GUARANTEE names. */
public final class Forward {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, System.getenv("STREAMPROOF_GROUP"));
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("STREAMPROOF_BOOTSTRAP_SERVERS"));
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, System.getenv("GUARANTEE"));
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, System.getenv("COMMIT_INTERVAL_MS"));
        properties.put(
                StreamsConfig.STATE_DIR_CONFIG,
                Path.of(System.getenv("STREAMPROOF_STATE_FOLDER"), "streams-" + System.getenv("STREAMPROOF_INSTANCE")).toString());
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        properties.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "6000");
        properties.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "1500");
        properties.put(StreamsConfig.consumerPrefix("max.poll.records"), "200");

        StreamsBuilder topology = new StreamsBuilder();
        topology.stream(System.getenv("STREAMPROOF_INPUT_TOPIC"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .to(System.getenv("STREAMPROOF_OUTPUT_TOPIC"), Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));

        KafkaStreams streams = new KafkaStreams(topology.build(), properties);
        streams.setUncaughtExceptionHandler(thrown -> StreamThreadExceptionResponse.REPLACE_THREAD);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(8))));
        streams.start();
    }
}
