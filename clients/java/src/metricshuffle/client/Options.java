package metricshuffle.client;

import java.nio.file.Path;
import java.time.Duration;

/**
 * How a client takes part.
 *
 * @param outbox where a sealed report waits
 * @param user whose report it is, where one outbox serves several people
 * @param patience how long a report that cannot be delivered is sent again; it stays in the outbox
 * @param transport how the shuffler is asked
 * @param overLimit whether the person agreed to go over their limits
 */
public record Options(Outbox outbox, String user, Duration patience, Transport transport, boolean overLimit) {
  /** For the one person who uses a folder, by the HTTP client of the JDK, for a minute. */
  public static Options in(Path folder) {
    return new Options(new FolderOutbox(folder), "", Duration.ofMinutes(1), new HttpTransport(), false);
  }

  public Options user(String name) {
    return new Options(outbox, name, patience, transport, overLimit);
  }

  public Options patience(Duration longest) {
    return new Options(outbox, user, longest, transport, overLimit);
  }

  public Options transport(Transport other) {
    return new Options(outbox, user, patience, other, overLimit);
  }

  public Options overLimit(boolean agreed) {
    return new Options(outbox, user, patience, transport, agreed);
  }
}
