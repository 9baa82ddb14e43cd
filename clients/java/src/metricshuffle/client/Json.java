package metricshuffle.client;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A JSON value as it was read, and the text of one to be written; what is missing or of another kind is an error. */
final class Json {
  private static final int DEEPEST = 100;

  /** What was read is no JSON, or not what should stand there. */
  static final class Unreadable extends IllegalArgumentException {
    private static final long serialVersionUID = 1;

    Unreadable(String message) {
      super(message);
    }
  }

  /** A String, BigDecimal, Boolean, List of Json, Map of String to Json, or null. */
  private final Object value;

  private Json(Object value) {
    this.value = value;
  }

  static Json read(byte[] utf8) {
    try {
      return read(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString());
    } catch (CharacterCodingException damaged) {
      throw new Unreadable("this is no UTF-8");
    }
  }

  static Json read(String text) {
    Reader reader = new Reader(text);
    Json whole = reader.value(0);
    reader.space();
    if (reader.at < text.length()) throw reader.unreadable();
    return whole;
  }

  // What stands in it

  boolean isNull() {
    return value == null;
  }

  boolean isObject() {
    return value instanceof Map;
  }

  boolean isList() {
    return value instanceof List;
  }

  boolean isText() {
    return value instanceof String;
  }

  boolean isNumber() {
    return value instanceof BigDecimal;
  }

  boolean has(String name) {
    return members().containsKey(name);
  }

  Json get(String name) {
    Json member = members().get(name);
    if (member == null) throw new Unreadable("there is no \"" + name + "\"");
    return member;
  }

  @SuppressWarnings("unchecked")
  Map<String, Json> members() {
    if (!isObject()) throw new Unreadable("this is no object");
    return (Map<String, Json>) value;
  }

  @SuppressWarnings("unchecked")
  List<Json> list() {
    if (!isList()) throw new Unreadable("this is no list");
    return (List<Json>) value;
  }

  List<String> texts() {
    return list().stream().map(Json::text).toList();
  }

  String text() {
    if (!isText()) throw new Unreadable("this is no text");
    return (String) value;
  }

  boolean flag() {
    if (!(value instanceof Boolean)) throw new Unreadable("this is neither true nor false");
    return (Boolean) value;
  }

  double number() {
    if (!isNumber()) throw new Unreadable("this is no number");
    return ((BigDecimal) value).doubleValue();
  }

  /** A whole number below 2^53 in size, as all numbers of a collection are. */
  long whole() {
    if (!isNumber()) throw new Unreadable("this is no number");
    try {
      long whole = ((BigDecimal) value).longValueExact();
      if (Math.abs(whole) < 1L << 53) return whole;
    } catch (ArithmeticException fraction) {
      // told below
    }
    throw new Unreadable("this is no whole number below 2^53");
  }

  /** A count or a place in a list. */
  int count() {
    long count = whole();
    if (count < 0 || count > Integer.MAX_VALUE) throw new Unreadable("this is no count");
    return (int) count;
  }

  /** A whole number of any size, that stands there as decimal text or as a number. */
  BigInteger integer() {
    if (isNumber()) return BigInteger.valueOf(whole());
    String digits = text();
    if (!digits.matches("-?[0-9]{1,400}")) throw new Unreadable("these are no decimal digits");
    return new BigInteger(digits);
  }

  /** A real number that stands there as text, which reads back as the same double. */
  double real() {
    String text = text();
    if (!text.matches("-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?")) {
      throw new Unreadable("this is the text of no number");
    }
    return Double.parseDouble(text);
  }

  // Writing

  /** The text of maps, lists, text, numbers, booleans, null, and of what was read; as JSON.stringify writes it. */
  static String write(Object value) {
    StringBuilder text = new StringBuilder();
    write(value, text);
    return text.toString();
  }

  private static void write(Object value, StringBuilder text) {
    if (value instanceof Json read) {
      write(read.value, text);
    } else if (value instanceof Map<?, ?> members) {
      String before = "{";
      for (Map.Entry<?, ?> member : members.entrySet()) {
        text.append(before);
        quote((String) member.getKey(), text);
        text.append(':');
        write(member.getValue(), text);
        before = ",";
      }
      text.append(members.isEmpty() ? "{}" : "}");
    } else if (value instanceof Iterable<?> items) {
      text.append('[');
      String before = "";
      for (Object item : items) {
        text.append(before);
        write(item, text);
        before = ",";
      }
      text.append(']');
    } else if (value instanceof String string) {
      quote(string, text);
    } else {
      text.append(value);
    }
  }

  private static void quote(String string, StringBuilder text) {
    text.append('"');
    for (int place = 0; place < string.length(); place++) {
      char letter = string.charAt(place);
      int escaped = "\"\\\b\f\n\r\t".indexOf(letter);
      boolean paired =
          Character.isHighSurrogate(letter)
                  && place + 1 < string.length()
                  && Character.isLowSurrogate(string.charAt(place + 1))
              || Character.isLowSurrogate(letter)
                  && place > 0
                  && Character.isHighSurrogate(string.charAt(place - 1));
      if (escaped >= 0) text.append('\\').append("\"\\bfnrt".charAt(escaped));
      else if (letter < ' ' || Character.isSurrogate(letter) && !paired) {
        text.append(String.format("\\u%04x", (int) letter));
      } else text.append(letter);
    }
    text.append('"');
  }

  // Reading

  private static final class Reader {
    final String text;
    int at = 0;

    Reader(String text) {
      this.text = text;
    }

    Unreadable unreadable() {
      return new Unreadable("this is no JSON: character " + (at + 1) + " should not stand there");
    }

    char next() {
      return at < text.length() ? text.charAt(at) : '\0';
    }

    void space() {
      while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) at++;
    }

    boolean takes(String expected) {
      if (!text.startsWith(expected, at)) return false;
      at += expected.length();
      return true;
    }

    void demand(String expected) {
      if (!takes(expected)) throw unreadable();
    }

    Json value(int depth) {
      if (depth > DEEPEST) throw unreadable();
      space();
      if (takes("{")) return object(depth);
      if (takes("[")) return items(depth);
      if (next() == '"') return new Json(string());
      if (takes("true")) return new Json(true);
      if (takes("false")) return new Json(false);
      if (takes("null")) return new Json(null);
      return new Json(decimal());
    }

    private Json object(int depth) {
      Map<String, Json> members = new LinkedHashMap<>();
      space();
      if (takes("}")) return new Json(members);
      do {
        space();
        String name = string();
        space();
        demand(":");
        if (members.put(name, value(depth + 1)) != null) throw unreadable();
        space();
      } while (takes(","));
      demand("}");
      return new Json(Collections.unmodifiableMap(members));
    }

    private Json items(int depth) {
      List<Json> items = new ArrayList<>();
      space();
      if (takes("]")) return new Json(items);
      do {
        items.add(value(depth + 1));
        space();
      } while (takes(","));
      demand("]");
      return new Json(Collections.unmodifiableList(items));
    }

    private String string() {
      demand("\"");
      StringBuilder string = new StringBuilder();
      while (!takes("\"")) {
        char letter = next();
        if (at >= text.length() || letter < ' ') throw unreadable();
        at++;
        string.append(letter == '\\' ? escaped() : letter);
      }
      return string.toString();
    }

    private char escaped() {
      int known = "\"\\/bfnrt".indexOf(next());
      if (known >= 0 && at < text.length()) {
        at++;
        return "\"\\/\b\f\n\r\t".charAt(known);
      }
      demand("u");
      int code = 0;
      for (int place = 0; place < 4; place++) {
        char letter = next();
        int digit = letter < 128 ? Character.digit(letter, 16) : -1;
        if (digit < 0) throw unreadable();
        code = 16 * code + digit;
        at++;
      }
      return (char) code;
    }

    private BigDecimal decimal() {
      int start = at;
      takes("-");
      if (!takes("0")) digits();
      if (takes(".")) digits();
      if (takes("e") || takes("E")) {
        if (!takes("+")) takes("-");
        digits();
      }
      if (at - start > 400) throw unreadable();
      try {
        return new BigDecimal(text.substring(start, at));
      } catch (NumberFormatException beyond) {
        throw unreadable();
      }
    }

    private void digits() {
      int start = at;
      while (next() >= '0' && next() <= '9') at++;
      if (at == start) throw unreadable();
    }
  }
}
