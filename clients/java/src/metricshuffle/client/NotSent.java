package metricshuffle.client;

import java.io.IOException;

/** A report was not stored; the message says why. */
public class NotSent extends IOException {
  private static final long serialVersionUID = 1;

  private final boolean again;
  private final int status;

  NotSent(String message, boolean again, int status) {
    super(message);
    this.again = again;
    this.status = status;
  }

  NotSent(String message, boolean again) {
    this(message, again, 0);
  }

  /** It waits in the outbox, and {@code send} may be called later; what it holds does not change. */
  public boolean again() {
    return again;
  }

  /** The status of the answer; 0 if there was none. */
  public int status() {
    return status;
  }
}
