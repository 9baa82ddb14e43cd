package metricshuffle.client;

/** A report would go over a limit that its person has set; nothing was made or sent. {@link Options#overLimit} goes on. */
public final class OverLimit extends NotSent {
  private static final long serialVersionUID = 1;

  OverLimit(String message) {
    super(message, false);
  }
}
