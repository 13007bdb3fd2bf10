package streamproof.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/**
 * The durable decision log. One file a batch: {@code N.decided} appears whole and forced to disk, or not at all; from then on the batch is
 * committed, whoever dies. {@code N.done} says that its transactions were committed too.
 *
 * <p>The folder needs a file system with an atomic rename, as Spark's checkpoint does.
 */
final class DecisionLog {
    /** As many batches as Spark keeps in its checkpoint: an older one cannot run again. */
    private static final long KEPT = 100;

    private static final ObjectMapper JSON = new ObjectMapper();

    private final Path folder;
    private final FileSystem files;

    DecisionLog(String location, String queryId, Configuration configuration) {
        try {
            FileSystem found = new Path(location).getFileSystem(configuration);
            files = found instanceof LocalFileSystem local ? local.getRawFileSystem() : found;
            folder = files.makeQualified(new Path(location));
            files.mkdirs(folder);
            belongTo(queryId);
        } catch (IOException error) {
            throw new UncheckedIOException("the decision log " + location + " cannot be opened", error);
        }
    }

    /** A query with a new checkpoint counts its batches from 0 again: by another query's decisions it would leave out what it must write. */
    private void belongTo(String queryId) throws IOException {
        Path owner = new Path(folder, "query");
        if (!files.exists(owner)) {
            write(owner, queryId);
        }
        String found = text(owner);
        if (!found.equals(queryId)) {
            throw new IllegalStateException("the decision log " + folder + " belongs to the query " + found + ", this one is " + queryId
                    + ": a new checkpoint needs a new folder for its decisions");
        }
    }

    /** What was decided for the batch; null when nothing was. */
    List<Prepared> read(long batch) throws IOException {
        for (Path path : List.of(open(batch), done(batch))) {
            try {
                return parse(path);
            } catch (FileNotFoundException absent) {
                continue;
            }
        }
        return null;
    }

    void decide(long batch, List<Prepared> transactions) throws IOException {
        if (files.exists(open(batch)) || files.exists(done(batch))) {
            throw new IllegalStateException("batch " + batch + " was decided before: see " + folder);
        }
        String text = transactions.stream().map(DecisionLog::json).collect(Collectors.joining(", ", "[", "]"));
        write(open(batch), text);
    }

    /** The file appears whole, or not at all. */
    private void write(Path path, String text) throws IOException {
        Path temporary = new Path(folder, "." + path.getName());
        try (FSDataOutputStream out = files.create(temporary, true)) {
            out.write(text.getBytes(StandardCharsets.UTF_8));
            out.hsync();
        }
        rename(temporary, path);
    }

    private String text(Path path) throws IOException {
        try (InputStream in = files.open(path)) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    private static String json(Prepared each) {
        // Kafka allows any text in an id.
        String id = JSON.getNodeFactory().textNode(each.transactionalId()).toString();
        return "{\"transactional_id\": " + id + ", \"producer_id\": " + each.producerId() + ", \"epoch\": " + each.epoch() + "}";
    }

    /** Note that every transaction of the decision was committed. */
    void finish(long batch) throws IOException {
        if (files.exists(open(batch))) {
            rename(open(batch), done(batch));
        }
        files.delete(done(batch - KEPT), false);
    }

    /** Decisions that may not have been carried out yet. */
    TreeMap<Long, List<Prepared>> unfinished() throws IOException {
        TreeMap<Long, List<Prepared>> found = new TreeMap<>();
        for (FileStatus file : files.listStatus(folder)) {
            String name = file.getPath().getName();
            if (name.endsWith(".decided")) {
                found.put(number(name), parse(file.getPath()));
            }
        }
        return found;
    }

    /** The last batch that was decided; -1 when none was. */
    long last() throws IOException {
        long last = -1;
        for (FileStatus file : files.listStatus(folder)) {
            String name = file.getPath().getName();
            if (name.endsWith(".decided") || name.endsWith(".done")) {
                last = Math.max(last, number(name));
            }
        }
        return last;
    }

    private static long number(String name) {
        return Long.parseLong(name.substring(0, name.indexOf('.')));
    }

    private List<Prepared> parse(Path path) throws IOException {
        List<Prepared> transactions = new ArrayList<>();
        for (JsonNode each : JSON.readTree(text(path))) {
            String id = each.get("transactional_id").asText();
            transactions.add(new Prepared(id, each.get("producer_id").asLong(), (short) each.get("epoch").asInt()));
        }
        return transactions;
    }

    private Path open(long batch) {
        return new Path(folder, batch + ".decided");
    }

    private Path done(long batch) {
        return new Path(folder, batch + ".done");
    }

    private void rename(Path from, Path to) throws IOException {
        if (!files.rename(from, to)) {
            throw new IOException(from + " could not be renamed to " + to);
        }
        if (files instanceof RawLocalFileSystem local) {
            try (FileChannel directory = FileChannel.open(local.pathToFile(folder).toPath(), StandardOpenOption.READ)) {
                directory.force(true);
            }
        }
    }
}
