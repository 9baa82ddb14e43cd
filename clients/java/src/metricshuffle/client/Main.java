package metricshuffle.client;

import java.io.Console;
import java.io.IOException;
import java.nio.charset.Charset;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Taking part from a command line. Exit code 0: the report is stored (or nothing was sent, where it was declined); 2: a sentence says why not. */
public final class Main {
  private static final String USAGE =
      """
      java -jar metricshuffle-client.jar [OPTION ...] COLLECTION VALUE [VALUE ...]

      COLLECTION      file collection.json, or address of a collection
      VALUE           number, label, LATITUDE,LONGITUDE, COLUMN,ROW or LABEL,NUMBER; several where
                      several items, columns, labels or keys are asked for, two for a trip, and ""
                      for no label or key; - reads them from standard input, one per line
      --digest SHA256     published digest of the collection; another one is refused
      --outbox FOLDER     where a sealed report waits until it is stored; "outbox" beside the file
      --user NAME         whose report it is, where several people share an outbox; it is not sent
      --ticket-file FILE  file with your ticket, where the collection asks for one
      --patience SECONDS  how long to send again what cannot be delivered; 60 if left out
      --decline           discard your waiting report, and make none for this round; without VALUE
      --budget            what the reports in --outbox (and of --user) reveal together, by unit of
                          distance; without COLLECTION
      --limit LIMIT       with --budget: set a limit of yours, like "3 at 100 kcal in 30d", above which
                          you are asked first; "none at 100 kcal in 30d" removes it
      --yes               take part even if that goes over a limit of yours
      """;
  private static final Set<String> NAMES = Set.of("--digest", "--outbox", "--user", "--ticket-file", "--patience", "--limit");
  private static final Pattern ADDRESS =
      Pattern.compile("(https?://.+?)/?(?:/(?:v1/collections|join)/([0-9a-f]{64}))?/?");
  private static final String NUMBER = "[+-]?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?";
  private static final int NOT_STORED = 2;

  /** A command that cannot be followed; the message says why. */
  private static final class UsageError extends RuntimeException {
    private static final long serialVersionUID = 1;

    UsageError(String message) {
      super(message);
    }
  }

  private Main() {}

  public static void main(String[] arguments) {
    if (List.of(arguments).contains("--help")) {
      System.out.print(USAGE);
      return;
    }
    try {
      System.out.println(answer(arguments));
    } catch (UsageError | ValueError | CollectionError | NotSent refused) {
      System.err.println(refused.getMessage());
      System.exit(NOT_STORED);
    } catch (IOException | IllegalArgumentException failed) {
      String kind = failed.getClass().getSimpleName();
      System.err.println("This failed, and no report is known to be stored: " + failed.getMessage() + " (" + kind + ").");
      System.exit(NOT_STORED);
    }
  }

  private static String answer(String[] arguments) throws IOException {
    Deque<String> words = new ArrayDeque<>(Arrays.asList(arguments));
    Map<String, String> named = new HashMap<>();
    boolean declines = false;
    boolean sums = false;
    boolean agrees = false;
    while (!words.isEmpty() && words.peek().startsWith("--")) {
      String name = words.pop();
      if (name.equals("--decline")) declines = true;
      else if (name.equals("--budget")) sums = true;
      else if (name.equals("--yes")) agrees = true;
      else if (!NAMES.contains(name)) throw new UsageError("There is no option " + name + "; see --help.");
      else if (words.isEmpty()) throw new UsageError(name + " needs a value; see --help.");
      else if (named.put(name, words.pop()) != null) throw new UsageError(name + " was given twice.");
    }
    if (sums) {
      if (declines || !words.isEmpty()) throw new UsageError("--budget takes --outbox and --user, and no collection; see --help.");
      FolderOutbox outbox = new FolderOutbox(Path.of(named.getOrDefault("--outbox", "outbox")));
      String user = named.getOrDefault("--user", "");
      if (named.containsKey("--limit")) outbox.setLimit(user, limit(named.get("--limit")));
      return String.join("\n", Budget.sentences(outbox.entries(), outbox.limits(user), user));
    }
    if (named.containsKey("--limit")) throw new UsageError("--limit belongs to --budget.");
    if (words.isEmpty()) throw new UsageError("Name a collection; see --help.");
    String source = words.pop();
    if (declines != words.isEmpty()) {
      throw new UsageError("Give a value behind the collection, or --decline before it; see --help.");
    }
    Matcher address = ADDRESS.matcher(source);
    Path beside = address.matches() ? Path.of("outbox") : Path.of(source).resolveSibling("outbox");
    Path folder = named.containsKey("--outbox") ? Path.of(named.get("--outbox")) : beside;
    Options options =
        Options.in(folder)
            .user(named.getOrDefault("--user", ""))
            .patience(patience(named.getOrDefault("--patience", "60")));
    String digest = named.containsKey("--digest") ? named.get("--digest").strip().toLowerCase(Locale.ROOT) : null;
    Collection collection =
        address.matches()
            ? Collection.fetch(address.group(1), pinned(digest, address.group(2)), options.transport())
            : load(Path.of(source), digest);
    if (declines) return decline(new Client(collection, options));
    List<String> texts = List.copyOf(words).equals(List.of("-")) ? typedLines() : List.copyOf(words);
    try {
      return submit(new Client(collection, options.overLimit(agrees)), texts, named.get("--ticket-file"));
    } catch (OverLimit over) {
      Console console = System.console(); // null unless somebody sits there
      if (console == null) throw new UsageError(over.getMessage() + " Give --yes to go over the limit this time.");
      String answer = console.readLine("%s%nTake part all the same? [y/N] ", over.getMessage());
      if (answer == null || !answer.strip().matches("(?i)y|yes")) throw over;
      return submit(new Client(collection, options.overLimit(true)), texts, named.get("--ticket-file"));
    }
  }

  private static Limit limit(String text) {
    try {
      return Limit.parse(text);
    } catch (IllegalArgumentException wrong) {
      throw new UsageError(wrong.getMessage());
    }
  }

  private static Duration patience(String seconds) {
    if (!seconds.matches("[0-9]{1,7}")) throw new UsageError("--patience is a whole number of seconds.");
    return Duration.ofSeconds(Long.parseLong(seconds));
  }

  private static String pinned(String digest, String named) {
    String pinned = digest == null ? named : digest;
    if (pinned == null || !pinned.matches("[0-9a-f]{64}")) {
      throw new UsageError("Give the digest that was published with the collection: --digest and 64 letters and digits.");
    }
    return pinned;
  }

  /** A collection in a file, which ends with a line end that is not served. */
  private static Collection load(Path file, String digest) throws IOException {
    byte[] bytes = Files.readAllBytes(file);
    boolean ends = bytes.length > 0 && bytes[bytes.length - 1] == '\n';
    byte[] served = ends ? Arrays.copyOf(bytes, bytes.length - 1) : bytes;
    return Collection.read(served, digest == null ? Bytes.hexOf(Bytes.sha256(served)) : pinned(digest, null));
  }

  private static String decline(Client client) throws IOException {
    if (client.decline()) return "Nothing was sent, and nothing will be: no report is made for this round.";
    throw new NotSent(
        "The report may have been sent before it was declined; it is not sent again, and none is made for this round.",
        false);
  }

  private static String submit(Client client, List<String> texts, String ticketFile) throws IOException {
    Collection collection = client.collection();
    if (collection.why() != null) {
      throw new NotSent("This collection cannot be joined from here. " + collection.why(), false);
    }
    Value value = valueOf(collection.recipe().get("input"), texts);
    for (String line : List.of(collection.title(), collection.question())) {
      if (!line.isEmpty()) System.out.println(printable(line));
    }
    String analyst = collection.analyst().isEmpty() ? "somebody" : printable(collection.analyst());
    System.out.println("Asked by " + analyst + ", until " + printable(collection.closes()) + ".");
    System.out.println("Digest of the collection: " + collection.digest());
    String ticket = ticketFile == null ? "" : Files.readString(Path.of(ticketFile));
    if (ticketFile != null && client.waitsForTicket()) client.changeTicket(ticket);
    return client.submit(value, ticket).sentence();
  }

  /** Text of others, without what would command a terminal. */
  static String printable(String text) {
    return text.replaceAll("[\\p{Cc}\\p{Cf}]", " ");
  }

  private static List<String> typedLines() throws IOException {
    String text = new String(System.in.readAllBytes(), Charset.defaultCharset());
    List<String> lines = text.lines().map(String::strip).filter(line -> !line.isEmpty()).toList();
    if (lines.isEmpty()) throw new UsageError("- reads your value from standard input, and nothing is written there.");
    return lines;
  }

  /** What was typed, as the input of a recipe asks for it. */
  static Value valueOf(Json input, List<String> texts) {
    boolean isNone = texts.equals(List.of(""));
    switch (input.get("kind").text()) {
      case "items":
        return new Value.Items(texts.stream().map(text -> valueOf(input.get("of"), text)).toList());
      case "row":
        return new Value.Items(texts.stream().map(text -> valueOf(input.get("number"), text)).toList());
      case "set":
        List<String> labels = isNone ? List.of() : texts;
        return new Value.Items(labels.stream().map(text -> valueOf(input.get("label"), text)).toList());
      case "keys":
        List<String> keys = isNone ? List.of() : texts;
        return new Value.Items(keys.stream().map(Main::labelledNumber).toList());
      case "trip":
        if (texts.size() != 2) throw new ValueError("Enter two values, where the trip starts and where it ends.");
        return new Value.Trip(texts.get(0), texts.get(1));
      default:
    }
    if (texts.size() != 1) throw new ValueError("Enter one value; this collection asks for no more.");
    return valueOf(input, texts.get(0));
  }

  private static Value valueOf(Json input, String text) {
    int comma = text.lastIndexOf(',');
    String before = comma < 0 ? "" : text.substring(0, comma);
    String behind = text.substring(comma + 1);
    switch (input.get("kind").text()) {
      case "number":
        return new Value.Number(number(text));
      case "label":
        return new Value.Label(text);
      case "group":
        return labelledNumber(text);
      case "place":
      case "degrees":
        if (comma < 0) throw new ValueError("Enter two numbers with a comma between them, like 46.95,7.44.");
        boolean isCell = input.get("kind").text().equals("place") && input.get("box").isNull();
        return isCell
            ? new Value.Cell(cell(before), cell(behind))
            : new Value.Place(number(before), number(behind));
      default:
        throw new ValueError("This client does not know the values of this collection; use a newer one.");
    }
  }

  private static Value labelledNumber(String text) {
    int comma = text.lastIndexOf(','); // a label may have a comma, a number has none
    if (comma < 0) throw new ValueError("Enter a label and a number with a comma between them.");
    return new Value.LabelledNumber(text.substring(0, comma), number(text.substring(comma + 1)));
  }

  private static double number(String text) {
    if (!text.strip().matches(NUMBER)) throw new ValueError("Enter a number, like 14 or 2.5.");
    return Double.parseDouble(text.strip());
  }

  private static int cell(String text) {
    if (!text.strip().matches("[0-9]{1,9}")) {
      throw new ValueError("Enter a column and a row, whole numbers from 0, with a comma between them.");
    }
    return Integer.parseInt(text.strip());
  }
}
