// Package protocol is Waybill's wire in one place: every subject, every
// header, every error code and every JSON document that crosses between a
// program and the mesh, or between two services of it.
//
// The wire is versioned by subject (wb.v1.…) and grows only by added fields. A
// reader ignores what it does not know; a record that is read, changed and
// written again keeps it. testdata/wire/v1 holds golden documents; it is
// append-only, so a later version is shown to read what an earlier one wrote.
package protocol
