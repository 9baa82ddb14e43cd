package metricshuffle.client;

import java.io.IOException;
import java.net.URI;

/** How a shuffler is asked: by {@link HttpTransport}, or by what a platform without java.net.http has. */
public interface Transport {
  /** The status of an answer, its Retry-After (empty without one), and its bytes. */
  record Answer(int status, String retryAfter, byte[] body) {}

  /**
   * Gets an address, or posts a body of type application/octet-stream with its Content-Length. No redirect is followed, nothing that tells
   * about the person is sent along, and at most {@code largest} + 1 bytes of the answer are read.
   *
   * @param body what is posted; null to get
   * @throws IOException if there is no answer
   */
  Answer ask(URI address, byte[] body, int largest) throws IOException;
}
