package metricshuffle.client;

import java.math.BigInteger;
import java.util.List;

/** One report about one code, drawn exactly by its law; the words are read in the order of the Python client. */
final class Randomizer {
  /** What the weights of a law sum to. */
  private static final BigInteger TOTAL = BigInteger.ONE.shiftLeft(63);

  private Randomizer() {}

  /** Reports on codes 0.., one each. */
  static long[] randomized(Json recipe, long[] codes, Words words) {
    return switch (recipe.get("kind").text()) {
      case "k-ary" -> kary(recipe, codes, words);
      case "rows" -> fromRows(recipe.get("weights").list(), codes, words);
      case "geometric" -> geometricOnAxes(recipe, codes, words);
      default ->
          throw new CollectionError(
              "This client does not know how reports of this collection are drawn; use a newer one.");
    };
  }

  /** The first {@code keep} of 2^63 numbers keep the code, then {@code other} numbers stand for each other option. */
  private record Options(BigInteger keep, BigInteger other) {
    long option(BigInteger number) {
      return number.compareTo(keep) < 0 ? -1 : number.subtract(keep).divide(other).longValueExact();
    }
  }

  /** Half a word nearly always tells. */
  private static long[] kary(Json recipe, long[] codes, Words words) {
    BigInteger keep = recipe.get("keep").integer();
    BigInteger other = recipe.get("other").integer();
    long count = recipe.get("options").whole();
    BigInteger sum = keep.add(other.multiply(BigInteger.valueOf(count - 1)));
    if (other.signum() < 1 || keep.compareTo(other) <= 0 || !sum.equals(TOTAL)) {
      throw new CollectionError("the weights of a k-ary response must sum to 2^63");
    }
    Options options = new Options(keep, other);
    long[] halves = new long[codes.length + 1];
    for (int pair = 0; pair < codes.length; pair += 2) {
      long word = words.next();
      halves[pair] = word & 0xffffffffL;
      halves[pair + 1] = word >>> 32;
    }
    long[] reports = new long[codes.length];
    for (int place = 0; place < codes.length; place++) {
      if (codes[place] >= count) throw outside();
      BigInteger first = BigInteger.valueOf(halves[place] << 31);
      long drawn = options.option(first);
      if (drawn != options.option(first.add(BigInteger.ONE.shiftLeft(31)))) {
        drawn = options.option(first.add(BigInteger.valueOf(words.next() >>> 33)));
      }
      reports[place] = drawn < 0 ? codes[place] : drawn >= codes[place] ? drawn + 1 : drawn;
    }
    return reports;
  }

  /** The number of partial sums that a random number of 63 bits reaches: all of them are compared, and no branch depends on the number. */
  private static long[] fromRows(List<Json> weights, long[] codes, Words words) {
    long[] reports = new long[codes.length];
    for (int place = 0; place < codes.length; place++) {
      if (codes[place] >= weights.size()) throw outside();
      List<Json> row = weights.get((int) codes[place]).list();
      long[] sums = new long[row.size()];
      BigInteger sum = BigInteger.ZERO;
      for (int column = 0; column < sums.length; column++) {
        BigInteger weight = row.get(column).integer();
        sum = sum.add(weight);
        if (weight.signum() < 0 || sum.compareTo(TOTAL) > 0) throw unbalanced();
        sums[column] = sum.longValue(); // 2^63 becomes -2^63, and the difference below is right all the same
      }
      if (!sum.equals(TOTAL)) throw unbalanced();
      long number = words.next() >>> 1;
      long count = 0;
      for (long partial : sums) count += 1 + ((number - partial) >> 63);
      reports[place] = count;
    }
    return reports;
  }

  /** Discrete Laplace noise on each axis, clamped to it; a cell's code is row * width + column. */
  private static long[] geometricOnAxes(Json recipe, long[] codes, Words words) {
    Noise.Rate rate = Noise.Rate.of(recipe.get("rate"));
    long[] drawn = new long[codes.length];
    long below = 1;
    for (Json spanText : recipe.get("spans").list()) {
      long span = spanText.count();
      for (int place = 0; place < codes.length; place++) {
        long exact = codes[place] / below % (span + 1);
        BigInteger noisy = BigInteger.valueOf(exact).add(Noise.laplace(words, rate));
        BigInteger clamped = noisy.max(BigInteger.ZERO).min(BigInteger.valueOf(span));
        drawn[place] += below * clamped.longValueExact();
      }
      below = Math.multiplyExact(below, span + 1);
    }
    for (long code : codes) if (code >= below) throw outside();
    return drawn;
  }

  private static CollectionError unbalanced() {
    return new CollectionError("the weights of a row must sum to 2^63");
  }

  private static CollectionError outside() {
    return new CollectionError("a value lies outside of what the randomizer is made for");
  }
}
