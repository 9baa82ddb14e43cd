package metricshuffle.client;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.List;
import java.util.stream.IntStream;

/** What a person enters, as whole numbers: steps of a number, places in a list, the column and row of a cell, points of a degree. */
final class Input {
  private Input() {}

  /** Steps of a number; {@code name} says which of several it is. */
  private static long stepOf(Json recipe, double value, String name) {
    double low = recipe.get("low").real();
    double high = recipe.get("high").real();
    double step = recipe.get("step").real();
    boolean isWhole = recipe.get("whole").flag();
    if (!(value >= low && value <= high)) throw outside(recipe, name);
    if (isWhole && value != Math.rint(value)) throw new ValueError(name + "Enter a whole number.");
    double steps = (value - low) / step;
    // numbers are as many steps, or in as many bins, as the range takes; both ends belong to it
    if (recipe.get("rounding").text().equals("nearest")) {
      // halves go to the even neighbour, as in IEEE arithmetic
      return (long) Math.min(Math.rint(steps), Math.ceil((high - low) / step - 1e-9));
    }
    double bins = Math.max(1, Math.ceil((high - low + (isWhole ? 1 : 0)) / step - 1e-9));
    return (long) Math.min(Math.floor(steps), bins - 1);
  }

  private static ValueError outside(Json recipe, String name) {
    String unit = recipe.get("unit").text();
    String ends = text(recipe.get("low").real()) + " to " + text(recipe.get("high").real());
    return new ValueError(name + "Enter a number from " + ends + (unit.isEmpty() ? "" : " " + unit) + ".");
  }

  /** A number for people: whole ones without a point. */
  static String text(double number) {
    return number == Math.rint(number) && Math.abs(number) < 1e15
        ? Long.toString((long) number)
        : Double.toString(number);
  }

  /** South, west, north and east in degrees. */
  private static double[] boxOf(Json recipe) {
    double[] box = recipe.get("box").list().stream().mapToDouble(Json::real).toArray();
    if (box.length != 4) throw new CollectionError("a box must have four sides");
    return box;
  }

  /** Checks that a place lies within a box. */
  private static void checkInside(double[] box, Value.Place place) {
    boolean inside =
        place.latitude() >= box[0]
            && place.latitude() <= box[2]
            && place.longitude() >= box[1]
            && place.longitude() <= box[3];
    if (inside) return;
    String latitudes = "a latitude from " + text(box[0]) + " to " + text(box[2]);
    String longitudes = "a longitude from " + text(box[1]) + " to " + text(box[3]);
    throw new ValueError("Choose " + latitudes + " and " + longitudes + ".");
  }

  /** A place as whole points from the south-west corner, so many a degree: a power of two, so that products with it are exact. */
  static BigInteger[] pointsOf(Json recipe, Value value) {
    if (!(value instanceof Value.Place place)) throw new ValueError("Choose a place.");
    checkInside(boxOf(recipe), place);
    double points = recipe.get("points").real();
    List<Json> corner = recipe.get("corner").list();
    return new BigInteger[] {
      whole(place.latitude() * points).subtract(corner.get(0).integer()),
      whole(place.longitude() * points).subtract(corner.get(1).integer())
    };
  }

  private static BigInteger whole(double number) {
    return new BigDecimal(Math.rint(number)).toBigIntegerExact();
  }

  /** The column and row of a place. */
  static int[] cellOf(Json recipe, Value value) {
    int width = recipe.get("width").count();
    int height = recipe.get("height").count();
    if (value instanceof Value.Cell cell) {
      boolean inside = cell.column() >= 0 && cell.column() < width && cell.row() >= 0 && cell.row() < height;
      if (inside) return new int[] {cell.column(), cell.row()};
      throw new ValueError(
          "Choose a column from 0 to " + (width - 1) + " and a row from 0 to " + (height - 1) + ".");
    }
    if (!(value instanceof Value.Place place)) throw new ValueError("Choose a place.");
    if (recipe.get("box").isNull()) {
      throw new ValueError("This grid is not on a map: give a column and a row.");
    }
    double[] box = boxOf(recipe);
    checkInside(box, place);
    double size = recipe.get("cell").real() * (recipe.get("unit").text().equals("km") ? 1000 : 1);
    double[] metres = new Plane(box).metres(place.latitude(), place.longitude());
    return new int[] {snapped(metres[0] / size, width), snapped(metres[1] / size, height)};
  }

  private static int snapped(double cells, int count) {
    return (int) Math.min(Math.max(Math.floor(cells), 0), count - 1);
  }

  /** One code of a value: cells are coded row * width + column. */
  static long codeOf(Json recipe, Value value) {
    switch (recipe.get("kind").text()) {
      case "group":
        if (!(value instanceof Value.LabelledNumber labelled)) {
          throw new ValueError("Choose a " + recipe.get("by").text() + " and enter a number.");
        }
        long group = codeOf(recipe.get("label"), new Value.Label(labelled.label()));
        long steps = codeOf(recipe.get("number"), new Value.Number(labelled.number()));
        return group * recipe.get("width").whole() + steps;
      case "number":
        if (!(value instanceof Value.Number number)) throw outside(recipe, "");
        return stepOf(recipe, number.number(), "");
      case "label":
        return placeOf(recipe, value instanceof Value.Label label ? label.label() : "");
      case "trip":
        if (!(value instanceof Value.Trip trip)) throw new ValueError("Choose where the trip starts and ends.");
        long labels = recipe.get("labels").list().size();
        return placeOf(recipe, trip.from()) * labels + placeOf(recipe, trip.to());
      case "place":
        int[] cell = cellOf(recipe, value);
        return (long) cell[1] * recipe.get("width").count() + cell[0];
      default:
        throw new ValueError("This client does not know the values of this collection; use a newer one.");
    }
  }

  private static int placeOf(Json recipe, String label) {
    int place = recipe.get("labels").texts().indexOf(label);
    if (place < 0) throw new ValueError("Choose one of the labels.");
    return place;
  }

  private static boolean isRecord(String kind) {
    return List.of("row", "set", "keys").contains(kind);
  }

  /** Codes of the parts of a record: column * width + steps, or 2 * place + 1 of a label in a set. */
  private static long[] recordOf(Json recipe, List<Value> values) {
    if (recipe.get("kind").text().equals("row")) {
      List<String> columns = recipe.get("columns").texts();
      if (values.size() != columns.size()) throw new ValueError("Enter " + columns.size() + " numbers.");
      return IntStream.range(0, columns.size())
          .mapToLong(place -> partOf(recipe, place, columns.get(place), values.get(place)))
          .toArray();
    }
    boolean isSet = recipe.get("kind").text().equals("set");
    Json label = recipe.get("label");
    int[] places = values.stream().mapToInt(held -> placeOf(label, labelOf(held))).toArray();
    int[] different = IntStream.of(places).distinct().toArray();
    // a label of a set may be said twice, a key has one number
    if (different.length > recipe.get("most").count() || !isSet && different.length < places.length) {
      throw new ValueError("Choose up to " + recipe.get("most").count() + " different ones.");
    }
    if (isSet) return IntStream.of(different).mapToLong(place -> 2L * place + 1).toArray();
    return IntStream.range(0, places.length)
        .mapToLong(at -> partOf(recipe, places[at], labelOf(values.get(at)), values.get(at)))
        .toArray();
  }

  private static String labelOf(Value value) {
    if (value instanceof Value.Label label) return label.label();
    return value instanceof Value.LabelledNumber labelled ? labelled.label() : "";
  }

  /** The number of a column or key. */
  private static long partOf(Json recipe, int place, String name, Value value) {
    double number =
        value instanceof Value.Number bare
            ? bare.number()
            : value instanceof Value.LabelledNumber labelled ? labelled.number() : Double.NaN;
    return place * recipe.get("width").whole() + stepOf(recipe.get("number"), number, name + ": ");
  }

  /** The codes of what a person holds: of their items, of the parts of a record, or of their one value. */
  static long[] codesOf(Json recipe, Value value) {
    String kind = recipe.get("kind").text();
    if (!kind.equals("items") && !isRecord(kind)) return new long[] {codeOf(recipe, value)};
    if (!(value instanceof Value.Items list)) throw new ValueError("Enter a list.");
    if (isRecord(kind)) return recordOf(recipe, list.items());
    Json count = recipe.get("count");
    Json most = recipe.get("most");
    int size = list.items().size();
    if (!count.isNull() && size != count.count()) {
      throw new ValueError("Enter exactly " + count.count() + " items.");
    }
    if (count.isNull() && (size < 1 || !most.isNull() && size > most.count())) {
      String limit = most.isNull() ? "any number of" : Integer.toString(most.count());
      throw new ValueError("Enter between 1 and " + limit + " items.");
    }
    return list.items().stream().mapToLong(item -> codeOf(recipe.get("of"), item)).toArray();
  }

  /** The coordinates of one value of a sum: two of a place, otherwise one. */
  static BigInteger[] stepsOf(Json recipe, Value value) {
    switch (recipe.get("kind").text()) {
      case "degrees":
        return pointsOf(recipe, value);
      case "place":
        int[] cell = cellOf(recipe, value);
        return new BigInteger[] {BigInteger.valueOf(cell[0]), BigInteger.valueOf(cell[1])};
      default:
        long[] codes = codesOf(recipe, value);
        BigInteger[] steps = new BigInteger[codes.length];
        for (int place = 0; place < codes.length; place++) steps[place] = BigInteger.valueOf(codes[place]);
        return steps;
    }
  }
}
