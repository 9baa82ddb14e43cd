package metricshuffle.client;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.channels.OverlappingFileLockException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.UnaryOperator;

/**
 * A folder with one small file for each report, which is replaced as a whole. A lock on the file {@code lock} lets one process in at a
 * time; the system takes it from one that was killed.
 */
public final class FolderOutbox implements Outbox {
  private static final long LOCK_PAUSE = 10;
  private static final boolean HAS_POSIX_FILES = File.separatorChar == '/';
  private static final Set<OpenOption> NEW = Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
  private static final FileAttribute<?>[] FOLDER = ownerOnly("rwx------");
  private static final FileAttribute<?>[] FILE = ownerOnly("rw-------");

  private static final String LIMITS = "limits";

  private final Path folder;

  public FolderOutbox(Path folder) {
    this.folder = folder;
  }

  @Override
  public Entry update(String key, UnaryOperator<Entry> change) throws IOException {
    createFolder();
    // a lock of a file is one of the process: threads wait for each other here
    synchronized (FolderOutbox.class) {
      try (FileChannel channel =
              FileChannel.open(folder.resolve("lock"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
          FileLock lock = locked(channel)) {
        if (!lock.isValid()) throw new NotSent("The outbox could not be locked.", true);
        Path file = file(key);
        Entry entry = read(file);
        Entry changed = change.apply(entry);
        if (changed == null) return entry;
        write(file, changed.write());
        return changed;
      }
    }
  }

  @Override
  public List<Limit> limits(String user) throws IOException {
    List<Limit> limits = new ArrayList<>();
    for (Json stored : storedLimits()) {
      if (stored.get("user").text().equals(user)) limits.add(Limit.parse(stored.get("limit").text()));
    }
    return limits;
  }

  /** Sets a limit of a user, which replaces one of the same distance and days; one of {@code none} removes it. */
  public void setLimit(String user, Limit limit) throws IOException {
    createFolder();
    synchronized (FolderOutbox.class) {
      try (FileChannel channel =
              FileChannel.open(folder.resolve("lock"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
          FileLock lock = locked(channel)) {
        if (!lock.isValid()) throw new NotSent("The outbox could not be locked.", true);
        List<Object> all = new ArrayList<>();
        for (Json stored : storedLimits()) {
          String owner = stored.get("user").text();
          String text = stored.get("limit").text();
          if (!owner.equals(user) || !limit.replaces(Limit.parse(text))) all.add(Map.of("user", owner, "limit", text));
        }
        if (!limit.epsilon().equals(Limit.NONE)) all.add(Map.of("user", user, "limit", limit.toString()));
        write(folder.resolve(LIMITS), Json.write(all));
      }
    }
  }

  private List<Json> storedLimits() throws IOException {
    try {
      return Json.read(Files.readString(folder.resolve(LIMITS))).list();
    } catch (NoSuchFileException none) {
      return List.of();
    } catch (IllegalArgumentException damaged) {
      throw new NotSent("The limits in the outbox " + folder + " cannot be read; nothing is drawn or sent.", false);
    }
  }

  /** Every entry; one that another process is replacing now is read as it was or as it will be. */
  @Override
  public List<Entry> entries() throws IOException {
    if (!Files.isDirectory(folder)) return List.of();
    List<Entry> entries = new ArrayList<>();
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*.json")) {
      for (Path file : files) entries.add(read(file));
    }
    entries.sort(Comparator.comparingLong(Entry::at));
    return entries;
  }

  private static FileAttribute<?>[] ownerOnly(String permissions) {
    if (!HAS_POSIX_FILES) return new FileAttribute<?>[0];
    Set<PosixFilePermission> own = PosixFilePermissions.fromString(permissions);
    return new FileAttribute<?>[] {PosixFilePermissions.asFileAttribute(own)};
  }

  private Path file(String key) {
    byte[] digest = Bytes.sha256(key.getBytes(StandardCharsets.UTF_8));
    return folder.resolve(Bytes.hexOf(digest) + ".json");
  }

  private void createFolder() throws IOException {
    if (Files.isDirectory(folder)) return;
    Files.createDirectories(folder, FOLDER);
  }

  private static FileLock locked(FileChannel channel) throws IOException {
    for (; ; ) {
      try {
        return channel.lock();
      } catch (OverlappingFileLockException busy) {
        pause(); // another copy of this class in the same process has it
      }
    }
  }

  private static void pause() throws IOException {
    try {
      Thread.sleep(LOCK_PAUSE);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new NotSent("The outbox is in use, and the thread was interrupted.", true);
    }
  }

  private Entry read(Path file) throws IOException {
    if (Files.exists(file.resolveSibling(file.getFileName() + ".1"))) {
      throw new NotSent(
          "The outbox " + folder + " is in use by the client for Node; use that one, or another folder.", false);
    }
    try {
      return Entry.read(Files.readString(file));
    } catch (NoSuchFileException none) {
      return null;
    } catch (IllegalArgumentException damaged) {
      throw new NotSent(
          "The outbox " + folder + " holds an entry that cannot be read; nothing is drawn or sent.", false);
    }
  }

  /** Replaces a file by one that is whole and on the disk. */
  private void write(Path file, String text) throws IOException {
    // one name, because the lock lets one in: what a killed process left is written over
    Path beside = file.resolveSibling(file.getFileName() + ".new");
    Files.deleteIfExists(beside);
    try (FileChannel channel = FileChannel.open(beside, NEW, FILE)) {
      ByteBuffer bytes = StandardCharsets.UTF_8.encode(text);
      while (bytes.hasRemaining()) channel.write(bytes);
      channel.force(true);
    }
    Files.move(beside, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    if (!HAS_POSIX_FILES) return; // Windows opens no folder, and writes its names by itself
    try (FileChannel names = FileChannel.open(folder, StandardOpenOption.READ)) {
      names.force(true); // what was moved stays so if the power fails now
    }
  }
}
