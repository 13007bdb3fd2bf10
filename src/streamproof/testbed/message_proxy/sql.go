package main

import (
	"slices"
	"strings"
)

// statementKinds are the names that statements have in rules and in the trace.
var statementKinds = []string{
	"BEGIN", "COMMIT", "ROLLBACK", "PREPARE TRANSACTION", "COMMIT PREPARED", "ROLLBACK PREPARED",
	"INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "SELECT", "TRUNCATE", "other",
}

const mostSQL = 200

// summary is the kind of each statement in sql, and its text without values: no literal, no number, no comment, no line break.
func summary(sql string) ([]string, string) {
	text := withoutValues(sql)
	kinds := []string{}
	for _, statement := range strings.Split(text, ";") {
		if words := strings.Fields(statement); len(words) > 0 {
			kinds = append(kinds, kindOf(words))
		}
	}
	if len(kinds) == 0 {
		kinds = append(kinds, "other")
	}
	if len(text) > mostSQL {
		text = strings.ToValidUTF8(text[:mostSQL], "") + "..."
	}
	return kinds, text
}

func kindOf(words []string) string {
	first, second := strings.ToUpper(words[0]), ""
	if len(words) > 1 {
		second = strings.ToUpper(words[1])
	}
	switch first {
	case "BEGIN", "START":
		return "BEGIN"
	case "PREPARE":
		if second == "TRANSACTION" {
			return "PREPARE TRANSACTION"
		}
	case "COMMIT", "END":
		if second == "PREPARED" {
			return "COMMIT PREPARED"
		}
		return "COMMIT"
	case "ROLLBACK", "ABORT":
		if second == "PREPARED" {
			return "ROLLBACK PREPARED"
		}
		if second != "TO" {
			return "ROLLBACK"
		}
	case "WITH":
		for _, word := range words {
			if upper := strings.ToUpper(strings.Trim(word, "()")); slices.Contains([]string{"INSERT", "UPDATE", "DELETE", "MERGE"}, upper) {
				return upper
			}
		}
		return "SELECT"
	case "INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "SELECT", "TRUNCATE":
		return first
	}
	return "other"
}

// withoutValues puts a question mark for each literal and each number.
func withoutValues(sql string) string {
	var text strings.Builder
	space := func() {
		if kept := text.String(); kept != "" && !strings.HasSuffix(kept, " ") {
			text.WriteByte(' ')
		}
	}
	for at := 0; at < len(sql); {
		c := sql[at]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			space()
			at++
		case strings.HasPrefix(sql[at:], "--"):
			space()
			at = behind(sql, at, "\n")
		case strings.HasPrefix(sql[at:], "/*"):
			space()
			at = behindComment(sql, at)
		case c == '\'':
			text.WriteByte('?')
			at = behindLiteral(sql, at, at > 0 && (sql[at-1] == 'E' || sql[at-1] == 'e') && !(at > 1 && ofName(sql[at-2])))
		case c == '"':
			end := behind(sql, at+1, `"`)
			text.WriteString(sql[at:end])
			at = end
		case c == '$' && dollarTag(sql[at:]) != "" && !(at > 0 && ofName(sql[at-1])):
			tag := dollarTag(sql[at:])
			text.WriteByte('?')
			at = behind(sql, at+len(tag), tag)
		case c >= '0' && c <= '9' && !(at > 0 && (ofName(sql[at-1]) || sql[at-1] == '$')):
			text.WriteByte('?')
			for at < len(sql) && (ofName(sql[at]) || sql[at] == '.') {
				at++
			}
		default:
			text.WriteByte(c)
			at++
		}
	}
	return strings.TrimSpace(text.String())
}

func ofName(c byte) bool {
	return c == '_' || c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
}

// behind is the place behind the next end, or the end of all.
func behind(sql string, at int, end string) int {
	if found := strings.Index(sql[at:], end); found >= 0 {
		return at + found + len(end)
	}
	return len(sql)
}

func behindComment(sql string, at int) int {
	depth := 0
	for at < len(sql) {
		switch {
		case strings.HasPrefix(sql[at:], "/*"):
			depth++
			at += 2
		case strings.HasPrefix(sql[at:], "*/"):
			depth--
			at += 2
		default:
			at++
		}
		if depth == 0 {
			return at
		}
	}
	return at
}

func behindLiteral(sql string, at int, escapes bool) int {
	for at++; at < len(sql); at++ {
		switch {
		case escapes && sql[at] == '\\':
			at++
		case sql[at] == '\'' && at+1 < len(sql) && sql[at+1] == '\'':
			at++
		case sql[at] == '\'':
			return at + 1
		}
	}
	return len(sql)
}

// dollarTag is the $tag$ that sql begins with, or nothing.
func dollarTag(sql string) string {
	for at := 1; at < len(sql); at++ {
		if sql[at] == '$' {
			return sql[:at+1]
		}
		if !ofName(sql[at]) || (at == 1 && sql[at] >= '0' && sql[at] <= '9') {
			return ""
		}
	}
	return ""
}
