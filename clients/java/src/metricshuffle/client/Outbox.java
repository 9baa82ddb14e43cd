package metricshuffle.client;

import java.io.IOException;
import java.util.List;
import java.util.function.UnaryOperator;

/** The outbox: a sealed report is written down before it is sent, and a retry sends the same bytes. Nothing is ever randomized twice. */
public interface Outbox {
  /**
   * Reads an entry and stores what {@code change} makes of it, durably, with nobody else in between; nothing is written if that is null.
   *
   * @param change gets null if there is no entry; may be called again if somebody else was quicker
   * @return what is there afterwards, null if nothing is
   */
  Entry update(String key, UnaryOperator<Entry> change) throws IOException;

  /** Every entry, also of other people; {@code update} may ask while it changes one. */
  default List<Entry> entries() throws IOException {
    return List.of();
  }

  /** The limits of a user; none if it stores none. */
  default List<Limit> limits(String user) throws IOException {
    return List.of();
  }
}
