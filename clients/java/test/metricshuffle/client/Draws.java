package metricshuffle.client;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.spec.PKCS8EncodedKeySpec;
import java.security.spec.X509EncodedKeySpec;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/** {@code Draws REQUEST.json}: what the client makes of known words or of the system's, for the Python tests to compare. */
final class Draws {
  private Draws() {}

  /** Words that are known. Reading farther than they go is an error, and so is leaving some. */
  static final class Known implements LongSupplier {
    private final ByteBuffer words;

    Known(byte[] bytes) {
      words = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    @Override
    public long getAsLong() {
      if (!words.hasRemaining()) {
        throw new AssertionError("more words were read than by the Python client");
      }
      return words.getLong();
    }

    static Object drawn(byte[] bytes, Function<Words, Object> act) {
      Known known = new Known(bytes);
      Object made = act.apply(new Words(known));
      int left = known.words.remaining() / Long.BYTES;
      return left > 0 ? left + " words are left" : made;
    }
  }

  /** Cells are lists in Python, and have types here. */
  static Value entry(Json input, Json value) {
    switch (input.get("kind").text()) {
      case "items":
        return new Value.Items(value.list().stream().map(item -> entry(input.get("of"), item)).toList());
      case "degrees":
        return new Value.Place(value.list().get(0).number(), value.list().get(1).number());
      case "row":
      case "set":
        return new Value.Items(value.list().stream().map(Draws::plain).toList());
      case "keys":
        return new Value.Items(value.list().stream().map(Draws::labelled).toList());
      case "trip":
        return new Value.Trip(value.list().get(0).text(), value.list().get(1).text());
      case "group":
        return labelled(value);
      case "place":
        return new Value.Cell(value.list().get(0).count(), value.list().get(1).count());
      default:
        return plain(value);
    }
  }

  private static Value labelled(Json pair) {
    return new Value.LabelledNumber(pair.list().get(0).text(), pair.list().get(1).number());
  }

  private static Value plain(Json value) {
    return value.isText() ? Value.of(value.text()) : Value.of(value.number());
  }

  static List<String> payloads(Json recipe, Json value, Words words) {
    List<BigInteger> numbers = Report.numbersOf(recipe, entry(recipe.get("input"), value), words);
    return Report.payloadsOf(recipe.get("payload"), numbers).stream().map(Bytes::hexOf).toList();
  }

  private static List<String> texts(BigInteger... numbers) {
    return Arrays.stream(numbers).map(BigInteger::toString).toList();
  }

  private static List<String> noise(Json law, int columns, Words words) {
    BigInteger[] values = new BigInteger[columns];
    Arrays.fill(values, BigInteger.ZERO);
    new Noise(law).addTo(values, IntStream.range(0, columns).toArray(), words);
    return texts(values);
  }

  private static long[] codes(Json list) {
    return list.list().stream().mapToLong(Json::whole).toArray();
  }

  // The vectors of the clients

  private static final class Comparison {
    final Map<String, Integer> counts = new TreeMap<>();
    final List<Object> different = new ArrayList<>();

    void compare(String name, Object made, Json expected) {
      counts.merge(name, 1, Integer::sum);
      if (!Json.write(made).equals(Json.write(expected))) different.add(Arrays.asList(name, made, expected));
    }

    void draw(String name, Json words, Json expected, Function<Words, Object> act) {
      compare(name, Known.drawn(Bytes.ofHex(words.text()), act), expected);
    }
  }

  private static Map<String, Object> compared(Json vectors) {
    Comparison all = new Comparison();
    for (Json each : vectors.get("residues").list()) {
      all.draw("residues", each.get("words"), each.get("residues"),
          words -> texts(words.residues(each.get("count").count(), each.get("modulus").integer())));
    }
    for (Json each : vectors.get("below").list()) {
      all.draw("below", each.get("words"), each.get("number"),
          words -> words.below(each.get("bound").integer()).toString());
    }
    List<Json> laws = new ArrayList<>(vectors.get("kary").list());
    laws.add(vectors.get("rows"));
    for (Json law : laws) {
      Json randomizer = law.get("randomizer");
      for (Json each : law.get("cases").list()) {
        long[] code = {each.list().get(0).whole()};
        all.draw(randomizer.get("kind").text(), each.list().get(1), each.list().get(2),
            words -> Randomizer.randomized(randomizer, code, words)[0]);
      }
    }
    for (Json each : vectors.get("ranks").list()) {
      List<long[]> rows = Noise.rowsOf(each.get("rows"));
      for (Json draw : each.get("cases").list()) {
        all.draw("rank", draw.list().get(0), draw.list().get(1), words -> Noise.rank(words, rows));
      }
    }
    for (Json each : vectors.get("laplace").list()) {
      Noise.Rate rate = Noise.Rate.of(each.get("rate"));
      all.draw("laplace", each.get("words"), each.get("values"),
          words -> each.get("values").list().stream().map(value -> Noise.laplace(words, rate).toString()).toList());
    }
    for (Json each : vectors.get("noise").list()) {
      all.draw("noise", each.get("words"), each.get("values"),
          words -> noise(each.get("noise"), each.get("columns").count(), words));
    }
    for (Json each : vectors.get("shares").list()) {
      all.draw("shares", each.get("words"), each.get("shares"), words -> shares(each, each.get("value"),
          each.get("shares").list().size(), words));
    }
    for (Json each : vectors.get("places").list()) {
      for (Json place : each.get("cases").list()) {
        Value value = new Value.Place(place.list().get(0).real(), place.list().get(1).real());
        int[] cell = Input.cellOf(each.get("input"), value);
        all.compare("place column", cell[0], place.list().get(2));
        all.compare("place row", cell[1], place.list().get(3));
      }
    }
    for (Map.Entry<String, Json> each : vectors.get("reports").members().entrySet()) {
      Json recipe = each.getValue().get("recipe");
      for (Json report : each.getValue().get("cases").list()) {
        all.draw("report: " + each.getKey(), report.get("words"), report.get("payloads"),
            words -> payloads(recipe, report.get("value"), words));
      }
    }
    return Map.of("counts", all.counts, "different", all.different);
  }

  private static List<String> shares(Json request, Json value, int messages, Words words) {
    BigInteger modulus = request.get("modulus").integer();
    return texts(Shares.modular(value.integer(), modulus, messages, words).toArray(BigInteger[]::new));
  }

  // Requests

  private static Object made(Json request) throws Exception {
    switch (request.get("make").text()) {
      case "vectors":
        return compared(Json.read(Files.readAllBytes(Path.of(request.get("file").text()))));
      case "noise":
        return Known.drawn(words(request), words -> noise(request.get("noise"), request.get("columns").count(), words));
      case "randomized":
        return Known.drawn(words(request), words -> LongStream.of(
            Randomizer.randomized(request.get("randomizer"), codes(request.get("codes")), words)).boxed().toList());
      case "shares":
        return Known.drawn(words(request), words -> request.get("values").list().stream()
            .map(value -> shares(request, value, request.get("messages").count(), words)).toList());
      case "reports":
        return reports(request.get("recipe"), request.get("values").list());
      case "sealed":
        return sealed(request);
      case "box":
        return box(request);
      case "submitted":
        return submitted(request);
      case "collection":
        return collection(request);
      case "spent":
        byte[] served = Bytes.ofHex(request.get("served").text());
        return Spent.of(Collection.read(served, request.get("digest").text()), "").members();
      case "payloads":
        List<BigInteger> numbers = request.get("numbers").list().stream().map(Json::integer).toList();
        return Report.payloadsOf(request.get("recipe"), numbers).stream().map(Bytes::hexOf).toList();
      default:
        throw new IllegalArgumentException("nothing is made of this request");
    }
  }

  private static byte[] words(Json request) throws Exception {
    return Files.readAllBytes(Path.of(request.get("words").text()));
  }

  /** Reports on values, with words of the system's. */
  private static Object reports(Json recipe, List<Json> values) {
    Words words = new Words();
    return values.stream().map(value -> payloads(recipe, value, words)).toList();
  }

  /** Payloads sealed for keys in hexadecimal digits. */
  private static Object sealed(Json request) {
    List<byte[]> keys = request.get("keys").texts().stream().map(Bytes::ofHex).toList();
    int piles = request.has("piles") ? request.get("piles").count() : 0;
    Sealer sealer = new Sealer(Bytes.ofHex(request.get("digest").text()), keys, piles);
    byte[] ticket = Bytes.ofHex(request.get("ticket").text());
    return request.get("reports").list().stream()
        .map(report -> sealer.boxes(report.texts().stream().map(Bytes::ofHex).toList()))
        .map(boxes -> Bytes.hexOf(sealer.report(boxes, ticket))).toList();
  }

  /** One box with an ephemeral key that is known. */
  private static Object box(Json request) throws Exception {
    KeyFactory factory = KeyFactory.getInstance("X25519");
    String secret = "302e020100300506032b656e04220420" + request.get("private").text();
    String open = "302a300506032b656e032100" + request.get("public").text();
    KeyPair pair = new KeyPair(
        factory.generatePublic(new X509EncodedKeySpec(Bytes.ofHex(open))),
        factory.generatePrivate(new PKCS8EncodedKeySpec(Bytes.ofHex(secret))));
    return Bytes.hexOf(Sealer.sealed(
        Bytes.ofHex(request.get("plain").text()),
        Bytes.ofHex(request.get("info").text()),
        Bytes.ofHex(request.get("associated").text()),
        Bytes.ofHex(request.get("key").text()),
        pair));
  }

  /** Values of several people, who share a folder, sent to a shuffler; what became of each. */
  private static Object submitted(Json request) throws Exception {
    List<String> sentences = new ArrayList<>();
    Options options = Options.in(Path.of(request.get("outbox").text()));
    List<Json> values = request.get("values").list();
    for (int person = 0; person < values.size(); person++) {
      String address = request.get("address").text();
      Client client = Client.join(address, request.get("digest").text(), options.user("person " + person));
      Json input = client.collection().recipe().get("input");
      sentences.add(client.submit(entry(input, values.get(person))).sentence());
    }
    return sentences;
  }

  /** Where reports go and how long they are, or why it is no collection to take part in. */
  private static Object collection(Json request) {
    try {
      byte[] served = Bytes.ofHex(request.get("served").text());
      Collection read = Collection.read(served, request.get("digest").text());
      return Arrays.asList(read.task(), read.round(), read.url().toString(), read.reportSize(), read.why());
    } catch (CollectionError refused) {
      return refused.getMessage();
    }
  }

  public static void main(String[] arguments) throws Exception {
    List<Object> answers = new ArrayList<>();
    for (Json request : Json.read(Files.readAllBytes(Path.of(arguments[0]))).list()) {
      answers.add(made(request));
    }
    System.out.write(Json.write(answers).getBytes(StandardCharsets.UTF_8));
    System.out.flush();
  }
}
