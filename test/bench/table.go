package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// table is a Markdown table, its head first, aligned for people.
type table [][]string

func (t table) writeTo(s *strings.Builder) {
	widths := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), len(rule))
		}
	}
	rules := make([]string, len(widths))
	for i := range rules {
		rules[i] = strings.Repeat(rule[:1], widths[i])
	}
	writeRow(s, t[0], widths)
	writeRow(s, rules, widths)
	for _, row := range t[1:] {
		writeRow(s, row, widths)
	}
}

// rule is the least that stands below a head.
const rule = "---"

func writeRow(s *strings.Builder, row []string, widths []int) {
	for i, cell := range row {
		s.WriteString("| " + cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+1))
	}
	s.WriteString("|\n")
}

// withoutEmpty is the table without columns that have nothing but a head.
func (t table) withoutEmpty() table {
	kept := make(table, len(t))
	for column := range t[0] {
		if !slices.ContainsFunc(t[1:], func(row []string) bool { return row[column] != nothing }) {
			continue
		}
		for i := range t {
			kept[i] = append(kept[i], t[i][column])
		}
	}
	return kept
}
