package metricshuffle.client;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.function.LongSupplier;

/** Random words of 64 bits and what is decided by them in whole numbers alone: no float touches a random choice. */
public final class Words {
  static final BigInteger WORD = BigInteger.ONE.shiftLeft(64);
  private static final BigInteger LARGEST = WORD.subtract(BigInteger.ONE);
  private static final int BUFFER_BYTES = 4096;

  private final LongSupplier source;

  /** Words of the system's generator. */
  public Words() {
    this(new SystemWords());
  }

  /** Words of a source of one's own: each must be uniform and unknown to everybody else. */
  public Words(LongSupplier source) {
    this.source = source;
  }

  /** Reads ahead; a word that was handed out is not kept. */
  private static final class SystemWords implements LongSupplier {
    private final SecureRandom random = new SecureRandom();
    private final byte[] bytes = new byte[BUFFER_BYTES];
    private final ByteBuffer view = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    private int at = BUFFER_BYTES;

    @Override
    public long getAsLong() {
      if (at == BUFFER_BYTES) {
        random.nextBytes(bytes);
        at = 0;
      }
      long word = view.getLong(at);
      view.putLong(at, 0);
      at += Long.BYTES;
      return word;
    }
  }

  /** The next word of the stream, whose 64 bits are all in use: it is unsigned. */
  long next() {
    return source.getAsLong();
  }

  static BigInteger unsigned(long word) {
    return BigInteger.valueOf(word).and(LARGEST);
  }

  /** Uniform on 0..bound-1, exactly: of the words with one high part of the product, equally many are kept for each (Lemire 2019). */
  BigInteger below(BigInteger bound) {
    checkBound(bound);
    BigInteger least = WORD.mod(bound);
    for (; ; ) {
      BigInteger product = unsigned(next()).multiply(bound);
      if (product.and(LARGEST).compareTo(least) >= 0) return product.shiftRight(64);
    }
  }

  /** {@code count} uniform residues. Words at or beyond the last whole multiple of the modulus are drawn again, after all the others. */
  BigInteger[] residues(int count, BigInteger modulus) {
    checkBound(modulus);
    BigInteger end = WORD.subtract(WORD.mod(modulus));
    BigInteger[] drawn = new BigInteger[count];
    boolean again;
    do {
      again = false;
      for (int place = 0; place < count; place++) {
        if (drawn[place] != null && drawn[place].compareTo(end) < 0) continue;
        drawn[place] = unsigned(next());
        again |= drawn[place].compareTo(end) >= 0;
      }
    } while (again);
    return Arrays.stream(drawn).map(word -> word.mod(modulus)).toArray(BigInteger[]::new);
  }

  private static void checkBound(BigInteger bound) {
    if (bound.signum() < 1 || bound.compareTo(WORD) > 0) {
      throw new CollectionError("a random number must have a bound from 1 to 2^64");
    }
  }
}
