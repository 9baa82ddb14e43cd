package metricshuffle.client;

/** What was entered is none of the values that are asked for; the message is for the person. */
public final class ValueError extends RuntimeException {
  private static final long serialVersionUID = 1;

  ValueError(String message) {
    super(message);
  }
}
