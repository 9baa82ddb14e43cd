package metricshuffle.client;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;

/** By the HTTP client of the JDK, without redirects, cookies or a name of the platform. */
public final class HttpTransport implements Transport {
  private final Duration longest;
  private final HttpClient client;

  /** Waits for 30 seconds: for a connection, for an answer to begin, and for its end. */
  public HttpTransport() {
    this(Duration.ofSeconds(30));
  }

  public HttpTransport(Duration longest) {
    this.longest = longest;
    client =
        HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .followRedirects(HttpClient.Redirect.NEVER)
            .connectTimeout(longest)
            .build();
  }

  @Override
  public Answer ask(URI address, byte[] body, int largest) throws IOException {
    HttpRequest.Builder request =
        HttpRequest.newBuilder(address).timeout(longest).header("User-Agent", "metricshuffle-client");
    if (body != null) {
      request.header("Content-Type", "application/octet-stream");
      request.POST(HttpRequest.BodyPublishers.ofByteArray(body));
    }
    try {
      HttpResponse<InputStream> response =
          client.send(request.build(), HttpResponse.BodyHandlers.ofInputStream());
      String later = response.headers().firstValue("retry-after").orElse("");
      try (InputStream stream = response.body()) {
        // what comes in too slowly is cut off; of an answer to a report nothing but its status counts
        Executor end = CompletableFuture.delayedExecutor(longest.toMillis(), TimeUnit.MILLISECONDS);
        if (body == null) end.execute(() -> close(stream));
        byte[] content = body == null ? stream.readNBytes(largest + 1) : new byte[0];
        return new Answer(response.statusCode(), later, content);
      }
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("the thread was interrupted");
    }
  }

  private static void close(InputStream stream) {
    try {
      stream.close();
    } catch (IOException closed) {
      // nobody reads it any more
    }
  }
}
