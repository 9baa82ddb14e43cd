package metricshuffle.client;

import java.io.ByteArrayOutputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.List;

/** Bytes: joined, hashed, and as hexadecimal digits. */
final class Bytes {
  private Bytes() {}

  static byte[] joined(List<byte[]> parts) {
    ByteArrayOutputStream whole = new ByteArrayOutputStream();
    for (byte[] part : parts) whole.writeBytes(part);
    return whole.toByteArray();
  }

  static byte[] joined(byte[]... parts) {
    return joined(List.of(parts));
  }

  static byte[] ofHex(String hexadecimal) {
    if (!hexadecimal.matches("[0-9a-f]*") || hexadecimal.length() % 2 != 0) {
      throw new IllegalArgumentException("these are no hexadecimal digits");
    }
    byte[] bytes = new byte[hexadecimal.length() / 2];
    for (int place = 0; place < bytes.length; place++) {
      bytes[place] = (byte) Integer.parseInt(hexadecimal.substring(2 * place, 2 * place + 2), 16);
    }
    return bytes;
  }

  static String hexOf(byte[] bytes) {
    StringBuilder digits = new StringBuilder(2 * bytes.length);
    for (byte part : bytes) {
      digits.append(Character.forDigit(part >> 4 & 15, 16)).append(Character.forDigit(part & 15, 16));
    }
    return digits.toString();
  }

  static byte[] sha256(byte[] bytes) {
    try {
      return MessageDigest.getInstance("SHA-256").digest(bytes);
    } catch (NoSuchAlgorithmException missing) {
      throw new IllegalStateException("this platform has no SHA-256", missing);
    }
  }
}
