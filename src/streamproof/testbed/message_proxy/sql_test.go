package main

import (
	"slices"
	"testing"
)

func TestSQLIsShownWithoutValues(t *testing.T) {
	for sql, expected := range map[string]string{
		"INSERT INTO t VALUES ('a''b', 17, 1.5e3, $1)":          "INSERT INTO t VALUES (?, ?, ?, $1)",
		"select E'it\\'s; secret', name1 from \"T;1\"":          "select E?, name1 from \"T;1\"",
		"CREATE ROLE r PASSWORD $x$se;cret$x$":                  "CREATE ROLE r PASSWORD ?",
		"UPDATE t -- secret\n SET a = 2 /* a /* b */ secret */": "UPDATE t SET a = ?",
		"COMMIT PREPARED 'gid'":                                 "COMMIT PREPARED ?",
		"SELECT 'never ended":                                   "SELECT ?",
	} {
		if _, text := summary(sql); text != expected {
			t.Errorf("%q: expected %q, came %q", sql, expected, text)
		}
	}
}

func TestStatementsAreNamed(t *testing.T) {
	for sql, expected := range map[string][]string{
		"begin; insert into t values (';'); commit;":         {"BEGIN", "INSERT", "COMMIT"},
		"START TRANSACTION ISOLATION LEVEL SERIALIZABLE":     {"BEGIN"},
		"PREPARE TRANSACTION 'x'":                            {"PREPARE TRANSACTION"},
		"COMMIT PREPARED 'x'":                                {"COMMIT PREPARED"},
		"ROLLBACK PREPARED 'x'":                              {"ROLLBACK PREPARED"},
		"ROLLBACK TO SAVEPOINT s":                            {"other"},
		"END":                                                {"COMMIT"},
		"WITH n AS (SELECT 1) INSERT INTO t SELECT * FROM n": {"INSERT"},
		"WITH n AS (SELECT 1) SELECT * FROM n":               {"SELECT"},
		"/* a comment */ copy t from stdin":                  {"COPY"},
		"":                                                   {"other"},
	} {
		if kinds, _ := summary(sql); !slices.Equal(kinds, expected) {
			t.Errorf("%q: expected %v, came %v", sql, expected, kinds)
		}
	}
}
