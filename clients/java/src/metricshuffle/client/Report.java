package metricshuffle.client;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** From a value to the messages of a report, by the recipe of a collection; see collection/recipes.py for what stands in one. */
final class Report {
  private Report() {}

  /** The numbers of a report, randomized: the messages of the first pile first. */
  static List<BigInteger> numbersOf(Json recipe, Value value, Words words) {
    return switch (recipe.get("protocol").text()) {
      case "sums" -> sums(recipe, value, words);
      case "frequencies" -> frequencies(recipe, Input.codesOf(recipe.get("input"), value), words);
      case "noisy-vectors" -> vectors(recipe, Input.codesOf(recipe.get("input"), value), words);
      case "shuffler-noise" -> Piles.numbersOf(recipe, Input.codesOf(recipe.get("input"), value), words);
      default ->
          throw new CollectionError(
              "This client does not know how reports of this collection are made; use a newer one.");
    };
  }

  /** floor(x / Q + U), U uniform: decided by a whole number below Q. */
  private static BigInteger rounded(BigInteger steps, BigInteger granularity, Words words) {
    if (granularity.equals(BigInteger.ONE)) return steps;
    boolean up = words.residues(1, granularity)[0].compareTo(steps.mod(granularity)) < 0;
    return steps.divide(granularity).add(up ? BigInteger.ONE : BigInteger.ZERO);
  }

  private static List<BigInteger> sums(Json recipe, Value value, Words words) {
    BigInteger[] steps = Input.stepsOf(recipe.get("input"), value);
    List<Json> spans = recipe.get("spans").list();
    Json granularity = recipe.get("granularity");
    if (steps.length != spans.size()) {
      throw new CollectionError("The recipe of this collection does not fit its question; do not take part.");
    }
    Noise noise = new Noise(recipe.get("noise"));
    BigInteger modulus = recipe.get("modulus").integer();
    int shares = recipe.get("shares").count();
    List<BigInteger> numbers = new ArrayList<>();
    for (int axis = 0; axis < steps.length; axis++) {
      if (steps[axis].signum() < 0 || steps[axis].compareTo(spans.get(axis).integer()) > 0) {
        throw new CollectionError("a value lies outside of what the noise is made for");
      }
      Json grain = granularity.isList() ? granularity.list().get(axis) : granularity;
      BigInteger[] cell = {rounded(steps[axis], grain.integer(), words)};
      noise.addTo(cell, new int[] {0}, words);
      numbers.addAll(Shares.modular(cell[0], modulus, shares, words));
    }
    return numbers;
  }

  /** As many of the items as are asked for, with replacement, or all of them. */
  static long[] drawn(Json recipe, long[] codes, Words words) {
    if (!recipe.get("drawn").flag()) return codes;
    BigInteger[] places = words.residues(recipe.get("items").count(), BigInteger.valueOf(codes.length));
    return Arrays.stream(places).mapToLong(place -> codes[place.intValueExact()]).toArray();
  }

  private static List<BigInteger> frequencies(Json recipe, long[] codes, Words words) {
    // in the order of their items a person's reports would tell more than which they are
    long[] reports = Randomizer.randomized(recipe.get("randomizer"), drawn(recipe, codes, words), words);
    return Arrays.stream(reports).sorted().mapToObj(BigInteger::valueOf).toList();
  }

  /** units * sum / size, each rounded at random by a whole number of its own below the size. */
  private static void roundAverages(BigInteger[] sums, BigInteger size, BigInteger units, Words words) {
    BigInteger[] draws = words.residues(sums.length, size);
    for (int place = 0; place < sums.length; place++) {
      if (sums[place].signum() < 0) {
        throw new CollectionError("only features that are never negative are rounded at random");
      }
      BigInteger[] parts = units.multiply(sums[place]).divideAndRemainder(size);
      boolean up = draws[place].compareTo(parts[1]) < 0;
      sums[place] = up ? parts[0].add(BigInteger.ONE) : parts[0];
    }
  }

  /** Averages, in units, rounded to the nearest (halves up). */
  private static BigInteger nearestAverage(BigInteger sum, BigInteger size, BigInteger units) {
    return units.multiply(sum).shiftLeft(1).add(size).divide(size.shiftLeft(1));
  }

  /** All products of the features of both ends of a trip. */
  private static long[] productsOf(Json features, long code) {
    List<Json> ends = features.get("ends").list();
    long width = features.get("width").whole();
    long[] start = numbersOf(ends.get(Math.toIntExact(code / ends.size())));
    long[] end = numbersOf(ends.get(Math.toIntExact(code % ends.size())));
    long[] row = new long[start.length * end.length / 2];
    int at = 0;
    for (int one = 0; one + 1 < start.length; one += 2) {
      for (int other = 0; other + 1 < end.length; other += 2) {
        row[at++] = start[one] * width + end[other];
        row[at++] = Math.multiplyExact(start[one + 1], end[other + 1]);
      }
    }
    return row;
  }

  private static long[] numbersOf(Json list) {
    return list.list().stream().mapToLong(Json::whole).toArray();
  }

  /** Coordinate, value, coordinate, value, ... of a point; those of some forms are computed. */
  private static long[] featuresOf(Json features, long code) {
    if (features.isList()) {
      if (code >= features.list().size()) {
        throw new CollectionError("a value lies outside of what the features are made for");
      }
      return numbersOf(features.list().get((int) code));
    }
    if (features.get("form").text().equals("products")) return productsOf(features, code);
    long top = features.get("top").count();
    long group = code / (top + 1);
    long x = code % (top + 1);
    return switch (features.get("form").text()) {
      case "columns" -> new long[] {group, x};
      case "up-down" -> new long[] {2 * group, x, 2 * group + 1, top - x};
      case "count-sum" -> new long[] {2 * group, 1, 2 * group + 1, 2 * x - top};
      default ->
          throw new CollectionError(
              "This client does not know the features of this collection; use a newer one.");
    };
  }

  private static List<BigInteger> vectors(Json recipe, long[] codes, Words words) {
    Json floor = recipe.get("floor");
    long[] points = floor.isNull() ? codes : Randomizer.randomized(floor, codes, words);
    BigInteger[] values = new BigInteger[recipe.get("coordinates").count()];
    Arrays.fill(values, BigInteger.ZERO);
    for (long point : points) {
      long[] row = featuresOf(recipe.get("features"), point);
      for (int place = 0; place + 1 < row.length; place += 2) {
        int coordinate = Math.toIntExact(row[place]);
        values[coordinate] = values[coordinate].add(BigInteger.valueOf(row[place + 1]));
      }
    }
    BigInteger units = recipe.get("units").integer();
    boolean hasItems = recipe.get("input").get("kind").text().equals("items");
    BigInteger size = BigInteger.valueOf(hasItems ? codes.length : 1);
    if (recipe.has("divisor")) {
      roundAverages(values, size.multiply(recipe.get("divisor").integer()), units, words);
    }
    if (!recipe.get("most_items").isNull()) {
      for (int place = 0; place < values.length; place++) {
        values[place] = nearestAverage(values[place], size, units);
      }
    }
    for (Json law : recipe.get("noise").list()) {
      int[] columns = law.get("columns").list().stream().mapToInt(Json::count).toArray();
      new Noise(law).addTo(values, columns, words);
    }
    return Shares.packed(values, recipe, recipe.get("payload").get("width").count(), words);
  }

  /**
   * The messages as bytes of equal length: pile and numbers, little endian. They are sorted, or those of each pile if they do not name
   * it: their order says nothing then.
   */
  static List<byte[]> payloadsOf(Json recipe, List<BigInteger> numbers) {
    int messages = Math.multiplyExact(recipe.get("piles").count(), recipe.get("each").count());
    int each = recipe.get("each").count();
    int pile = recipe.get("pile").count();
    int number = recipe.get("number").count();
    int width = recipe.get("width").count();
    if (numbers.size() != (long) messages * width) {
      throw new CollectionError("a report of this collection has another number of messages");
    }
    List<byte[]> payloads = new ArrayList<>(messages);
    for (int message = 0; message < messages; message++) {
      byte[] bytes = new byte[pile + number * width];
      if (pile > 0) put(bytes, BigInteger.valueOf(message / each), 0, pile);
      for (int place = 0; place < width; place++) {
        put(bytes, numbers.get(message * width + place), pile + number * place, number);
      }
      payloads.add(bytes);
    }
    int together = pile == 0 ? each : messages;
    for (int start = 0; start < messages; start += together) {
      payloads.subList(start, start + together).sort(Arrays::compareUnsigned);
    }
    return payloads;
  }

  private static void put(byte[] bytes, BigInteger value, int start, int size) {
    if (value.signum() < 0 || value.bitLength() > 8 * size) {
      throw new CollectionError("a number of a report does not fit its bytes");
    }
    for (int place = 0; place < size; place++) {
      bytes[start + place] = value.shiftRight(8 * place).byteValue();
    }
  }
}
