package metricshuffle.client;

/** The collection is not what it should be; the message is for the person. */
public final class CollectionError extends RuntimeException {
  private static final long serialVersionUID = 1;

  CollectionError(String message) {
    super(message);
  }

  CollectionError(String message, Throwable cause) {
    super(message, cause);
  }
}
