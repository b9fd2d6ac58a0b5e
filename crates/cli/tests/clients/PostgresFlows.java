import java.sql.*;
import java.time.*;
import java.util.*;
/** The usual flows of pgjdbc, outside of UTC, against a server whose table cpu has three rows. Takes the port. */
public class PostgresFlows {
    static int count(ResultSet rows) throws SQLException { int n = 0; while (rows.next()) n++; return n; }
    static void check(String what, boolean holds) { if (!holds) throw new RuntimeException(what); }
    public static void main(String[] args) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("America/New_York"));
        String url = "jdbc:postgresql://127.0.0.1:" + args[0] + "/default?user=tester&sslmode=disable";
        try (Connection c = DriverManager.getConnection(url)) {
            DatabaseMetaData m = c.getMetaData();
            System.out.println("schemas " + count(m.getSchemas()));
            System.out.println("catalogs " + count(m.getCatalogs()));
            System.out.println("tableTypes " + count(m.getTableTypes()));
            System.out.println("tables " + count(m.getTables(null, "public", "%", new String[]{"TABLE"})));
            try (ResultSet columns = m.getColumns(null, "public", "cpu", "%")) {
                while (columns.next()) System.out.println("column " + columns.getString("COLUMN_NAME") + " " + columns.getString("TYPE_NAME") + " " + columns.getInt("ORDINAL_POSITION") + " " + columns.getString("IS_NULLABLE"));
            }
            System.out.println("types " + count(m.getTypeInfo()));
            System.out.println("imported " + count(m.getImportedKeys(null, "public", "cpu")));
            System.out.println("exported " + count(m.getExportedKeys(null, "public", "cpu")));
            System.out.println("primary " + count(m.getPrimaryKeys(null, "public", "cpu")));
            System.out.println("indexes " + count(m.getIndexInfo(null, "public", "cpu", false, false)));
            System.out.println("procedures " + count(m.getProcedures(null, null, "%")));
            System.out.println("functions " + count(m.getFunctions(null, null, "%")));
            System.out.println("privileges " + count(m.getTablePrivileges(null, "public", "cpu")));
            System.out.println("best " + count(m.getBestRowIdentifier(null, "public", "cpu", DatabaseMetaData.bestRowSession, true)));
            System.out.println("udts " + count(m.getUDTs(null, null, "%", null)));
            System.out.println("keywords " + m.getSQLKeywords());
            System.out.println("client info " + count(m.getClientInfoProperties()));
            try (Statement s = c.createStatement()) {
                s.execute("CREATE TABLE jd (time TIMESTAMPTZ NOT NULL, host TAG, level DOUBLE PRECISION, n BIGINT, ok BOOLEAN, note TEXT)");
            }
            Instant at = Instant.parse("2024-07-10T12:00:00Z");
            c.setAutoCommit(false);
            try (PreparedStatement p = c.prepareStatement("INSERT INTO jd (time, host, level, n, ok, note) VALUES (?, ?, ?, ?, ?, ?)")) {
                for (int i = 0; i < 20; i++) {
                    p.setTimestamp(1, Timestamp.from(at.plusSeconds(i)));
                    p.setString(2, "a"); p.setDouble(3, i / 2.0); p.setInt(4, i); p.setBoolean(5, i % 2 == 0); p.setString(6, "x" + i);
                    p.addBatch();
                }
                int[] counts = p.executeBatch();
                check("batch " + Arrays.toString(counts), counts.length == 20 && counts[0] == 1);
                c.commit();
                p.setObject(1, OffsetDateTime.ofInstant(at.plusSeconds(100), ZoneOffset.UTC)); p.setString(2, "b"); p.setDouble(3, 1); p.setLong(4, 7); p.setBoolean(5, true); p.setNull(6, Types.VARCHAR);
                check("one", p.executeUpdate() == 1);
                c.rollback();
            }
            try (PreparedStatement p = c.prepareStatement("SELECT time, host, level, n, ok, note FROM jd WHERE time >= ? AND ok = ? AND n < ? ORDER BY time")) {
                p.setTimestamp(1, Timestamp.from(at.plusSeconds(4))); p.setBoolean(2, true); p.setInt(3, 9);
                for (int round = 0; round < 8; round++) try (ResultSet rows = p.executeQuery()) {
                    check("row", rows.next());
                    check("time " + rows.getTimestamp(1), rows.getTimestamp(1).toInstant().equals(at.plusSeconds(4)));
                    check("values", rows.getDouble(3) == 2.0 && rows.getLong(4) == 4 && rows.getBoolean(5) && rows.getString(6).equals("x4"));
                    check("object", rows.getObject(1, OffsetDateTime.class).toInstant().equals(at.plusSeconds(4)));
                    check("count", count(rows) == 2);
                }
            }
            try (PreparedStatement p = c.prepareStatement("SELECT n FROM jd WHERE n = ANY(?) ORDER BY n LIMIT ?")) {
                p.setArray(1, c.createArrayOf("bigint", new Object[]{3L, 5L, 7L})); p.setInt(2, 2);
                check("any", count(p.executeQuery()) == 2);
            }
            try (Statement s = c.createStatement()) { s.setFetchSize(7); check("fetched", count(s.executeQuery("SELECT * FROM jd")) == 20); }
            c.commit();
            Savepoint before = c.setSavepoint();
            try (Statement s = c.createStatement()) { s.execute("SELECT nothing FROM jd"); } catch (SQLException e) { check(e.getSQLState(), e.getSQLState().equals("42703")); }
            c.rollback(before);
            try (Statement s = c.createStatement()) { check("deleted", s.executeUpdate("DELETE FROM jd WHERE host = 'a'") == 20); }
            c.commit();
            c.setReadOnly(true); c.setReadOnly(false);
            check("valid", c.isValid(2));
        }
        System.out.println("well");
    }
}
