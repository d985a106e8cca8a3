package source

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/queuepump/queuepump/internal/jsonline"
)

var (
	errCSVQuote = errors.New(
		`invalid CSV: a quote inside an unquoted field, or text behind a closing quote`,
	)
	errCSVOpen = errors.New("invalid CSV: a quoted field does not end")
)

// csvRows is the format of CSV files with a header row (RFC 4180: commas or another separator,
// quotes doubled inside quotes, line ends inside quotes). The body of a task is its row as a JSON
// object by the header's names, all values strings: the names would be lost otherwise.
//
// It does not use encoding/csv, because that reads without bound when a quote
// is never closed, and cannot go on behind a bad row at a known place.
type csvRows struct {
	keyName, idName string
	separator       string // empty: a comma, unless the header has no other column
	comma           byte
	header          []string
	names           [][]byte // the header's names as JSON, with the colon
	key, id         int      // columns; -1 for none
	fields          []csvField
	text            []byte // the row's fields, unquoted, one after another
	body            []byte
	ids             idStrings
}

// csvField is a field's place in csvRows.text.
type csvField struct{ from, to int }

func (f *csvRows) start(c *lineReader) error {
	f.comma = cmp.Or(f.separator, ",")[0]
	if err := f.row(c); err == io.EOF {
		return errors.New("it is empty: the first row must be the header")
	} else if bad, ok := errors.AsType[*BadInput](err); ok {
		// Not a bad line that could be left out: without the header the rows mean nothing, and the next
		// call would read the same header again.
		return fmt.Errorf("the header row: %w", bad.Err)
	} else if err != nil {
		return fmt.Errorf("the header row: %w", err)
	}
	f.header, f.names = nil, nil
	for _, field := range f.fields {
		name := string(f.text[field.from:field.to])
		if slices.Contains(f.header, name) {
			return fmt.Errorf("the header row names column %q twice", name)
		}
		f.header = append(f.header, name)
		f.names = append(f.names, append(jsonline.AppendQuoted(nil, []byte(name)), ':'))
	}
	if strings.HasPrefix(strings.ToLower(f.header[0]), "sep=") {
		return fmt.Errorf("the first row, %q, is a note for spreadsheets: remove it, and say what "+
			"stands between the columns (--csv-separator)", f.text)
	}
	if only := f.header[0]; f.separator == "" && len(f.header) == 1 {
		if i := strings.IndexAny(only, ";\t|"); i >= 0 {
			return fmt.Errorf("the header row is one column, %q; if %q separates its columns, say so "+
				"(--csv-separator)", only, only[i:i+1])
		}
	}
	var err error
	if f.key, err = f.column(f.keyName); err != nil {
		return err
	}
	f.id, err = f.column(f.idName)
	return err
}

func (f *csvRows) column(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	i := slices.Index(f.header, name)
	if i < 0 {
		return -1, fmt.Errorf("there is no column %q, only %q", name, f.header)
	}
	return i, nil
}

func (f *csvRows) next(c *lineReader, rec *Record) error {
	if err := f.row(c); err != nil {
		return err
	}
	f.body = append(f.body[:0], '{')
	for i, field := range f.fields {
		if i > 0 {
			f.body = append(f.body, ',')
		}
		if i < len(f.names) {
			f.body = append(f.body, f.names[i]...)
		}
		f.body = jsonline.AppendQuoted(f.body, f.text[field.from:field.to])
	}
	f.body = append(f.body, '}')
	if len(f.fields) != len(f.header) {
		return &BadInput{
			Raw: keep(f.text),
			Err: fmt.Errorf("invalid CSV: %d fields where the header has %d", len(f.fields), len(f.header)),
		}
	}
	rec.Key, rec.ID, rec.Body = f.body, "", f.body
	if f.key >= 0 {
		rec.Key = f.text[f.fields[f.key].from:f.fields[f.key].to]
	}
	if f.id >= 0 {
		rec.ID = f.ids.make(f.text[f.fields[f.id].from:f.fields[f.id].to])
	}
	return nil
}

// row takes the next row that is not blank into f.fields. Of a bad row it takes the first line
// only: a quote that is never closed costs one line, not the rest of the file.
func (f *csvRows) row(c *lineReader) error {
	for {
		end, next, err := c.lineAt(0)
		if err == errLineTooLong {
			return c.tooLong()
		}
		if err != nil {
			return err
		}
		if end > 0 {
			return f.parse(c, end, next)
		}
		c.take(next, 1)
	}
}

// parse takes the row whose first line is at [0:end] and whose second line is at next.
func (f *csvRows) parse(c *lineReader, end, next int) error {
	f.fields, f.text = f.fields[:0], f.text[:0]
	firstNext, firstEnd := next, end
	bad := func(cause error) error {
		c.first = c.line
		return &BadInput{Raw: keep(c.take(firstNext, 1)[:firstEnd]), Err: cause}
	}
	lines := int64(1)
	at := 0 // of the field, from the start of the row; may be end: an empty last field
	for {
		from := len(f.text)
		line := c.buf[c.start : c.start+end]
		if at == end || line[at] != '"' {
			i := bytes.IndexByte(line[at:], f.comma)
			if i < 0 {
				i = end - at
			}
			if bytes.IndexByte(line[at:at+i], '"') >= 0 {
				return bad(errCSVQuote)
			}
			f.text = append(f.text, line[at:at+i]...)
			at += i
		} else {
			at++
			for {
				i := bytes.IndexByte(line[at:], '"')
				if i < 0 { // the field goes on in the next line
					f.text = append(append(f.text, line[at:]...), '\n')
					at = next
					var err error
					if end, next, err = c.lineAt(next); err == io.EOF && c.unfinished() {
						return io.EOF
					} else if err == io.EOF {
						return bad(errCSVOpen)
					} else if err == errLineTooLong {
						return bad(fmt.Errorf("%w within %d bytes", errCSVOpen, c.max))
					} else if err != nil {
						return err
					}
					line = c.buf[c.start : c.start+end]
					lines++
					continue
				}
				f.text = append(f.text, line[at:at+i]...)
				at += i + 1
				if at == end || line[at] != '"' {
					break
				}
				f.text = append(f.text, '"')
				at++
			}
			if at < end && line[at] != f.comma {
				return bad(errCSVQuote)
			}
		}
		f.fields = append(f.fields, csvField{from, len(f.text)})
		if at == end {
			c.first = c.line
			if wrong := c.undecoded(end); wrong != nil {
				return &BadInput{Raw: keep(c.take(next, lines)[:end]), Err: wrong}
			}
			c.take(next, lines)
			return nil
		}
		at++ // the comma; an empty field follows if it was the last of the row
	}
}

// plainLines is the format in which each line is a task and its own key.
type plainLines struct{}

func (plainLines) start(*lineReader) error { return nil }

func (plainLines) next(c *lineReader, rec *Record) error {
	line, err := nextLine(c)
	rec.Key, rec.ID, rec.Body = line, "", line
	return err
}
