package source

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/queuepump/queuepump/pump"
)

// Format says how tasks are cut from text.
type Format string

// The formats of a [TextSource]. In each of them blank lines are skipped.
const (
	FormatJSONLines Format = "jsonl" // a JSON value a line; the body is the line as it stands
	// rows under a header row; the body is the row as a JSON object of strings
	FormatCSV   Format = "csv"
	FormatLines Format = "lines" // the body is the line, and so is the key
)

// textVersion changes whenever the same bytes would become other tasks than
// before: a run begun by an older parser is then not continued (P2.3).
const textVersion = 3

const (
	defaultMaxLine = 1 << 20
	maxMaxLine     = 64 << 20
)

// TextSource reads tasks from files, standard input or the output of a command.
// An input that begins like gzip or zstd is decompressed. The zero value of every field
// but Paths or Command works. It must not be changed while it is in use.
type TextSource struct {
	// Format of the text. Default [FormatJSONLines].
	Format Format
	// Paths are files or patterns of them ([filepath.Glob]), read in this
	// order, the files of one pattern in the order of their names. "-" is
	// standard input. A pattern that no file matches is an error.
	//
	// Files are looked up once for a distribution, and each is read as far as it reached then: what
	// is appended later belongs to the next distribution, and a last line that goes on behind that
	// place is left to it too. Nothing is followed as tail does; for that read a pipe. A file that
	// was shortened or overwritten since it was looked up breaks the run, and so does another file
	// that took its place before it was opened.
	Paths []string
	// Command is a program and its arguments, to be used instead of Paths. No
	// shell is involved. The source ends with an error if the program fails.
	Command []string
	// Env is the environment of Command. Default: that of this process.
	Env []string
	// Key names the field or column that tasks are segmented by: "city", or
	// "address.city" for a field of a field; a backslash before a dot that belongs to the
	// name. Without it the whole line is the key. Not for FormatLines.
	Key string
	// ID names the field or column with the user's own name of the task. A line without the field is a
	// bad record, like a line without the key. Not for FormatLines.
	ID string
	// Separator stands between the columns of [FormatCSV], such as ";": one character of ASCII, or \t
	// as it is written in a shell. Default a comma.
	Separator string
	// Encoding is how the text is stored, by a name of the [WHATWG] or the IANA, such as
	// "windows-1252" or "utf-16". Default UTF-8. A record with a byte that is not of the encoding is a
	// bad one; without Encoding only rows of CSV are checked, and the bytes of other lines stay as
	// they are. Text that begins like UTF-16 or UTF-32 is an error, unless Encoding says so.
	//
	// [WHATWG]: https://encoding.spec.whatwg.org/#names-and-labels
	Encoding string
	// MaxLine is the longest line or row in bytes, up to 64 MiB; a longer one
	// is a bad record. Default 1 MiB.
	MaxLine int
	// Stdin is read for "-". Default [os.Stdin].
	Stdin io.Reader
	// Stderr receives what the command writes there. Default [os.Stderr].
	Stderr io.Writer
}

// JSONLines reads a task from each line of the JSON Lines files that path names.
func JSONLines(path, key string) *TextSource {
	return &TextSource{Format: FormatJSONLines, Paths: []string{path}, Key: key}
}

// CSV reads a task from each row of the CSV files that path names.
func CSV(path, key string) *TextSource {
	return &TextSource{Format: FormatCSV, Paths: []string{path}, Key: key}
}

// Lines reads a task from each line of the files that path names.
func Lines(path string) *TextSource {
	return &TextSource{Format: FormatLines, Paths: []string{path}}
}

const stdin = "-"

// Check reports what is wrong with any input: a format or options that do not exist.
func (s *TextSource) Check() error {
	switch s.Format {
	case "", FormatJSONLines, FormatCSV:
	case FormatLines:
		if s.Key != "" || s.ID != "" {
			return pump.Invalid("key",
				"plain lines have no fields", "leave key and id out, or read the text as jsonl or csv")
		}
	default:
		return pump.Invalid("format",
			fmt.Sprintf("%q is not a format", s.Format), "use jsonl, csv or lines")
	}
	switch {
	case len(s.Paths) == 0 && len(s.Command) == 0:
		return pump.Invalid("input",
			"there is nothing to read", "name a file, - for standard input, or a command")
	case len(s.Paths) > 0 && len(s.Command) > 0:
		return pump.Invalid("input", "files and a command are given", "use one of them")
	case slices.Contains(s.Paths, stdin) && len(s.Paths) > 1:
		return pump.Invalid("input", "standard input and files are given", "use one of them")
	case slices.ContainsFunc(s.Paths, func(p string) bool {
		_, err := filepath.Match(p, "")
		return err != nil && !exists(p)
	}):
		return pump.Invalid("input",
			"a pattern is not well-formed", "close each [, or put a backslash before it")
	case s.Separator != "" && (s.Format != FormatCSV || len(s.comma()) > 1 ||
		strings.ContainsAny(s.Separator, "\"\r\n") || s.Separator[0] >= utf8.RuneSelf):
		return pump.Invalid("csv-separator",
			fmt.Sprintf("%q is not one character between the columns of csv", s.Separator),
			"use one such as ; with --format csv")
	case s.MaxLine < 0 || s.MaxLine > maxMaxLine:
		return pump.Invalid("max-line",
			fmt.Sprintf("%d is out of range", s.MaxLine), fmt.Sprintf("use up to %d bytes", maxMaxLine))
	}
	_, err := s.encoding()
	return err
}

// comma is the separator.
func (s *TextSource) comma() string { return strings.ReplaceAll(s.Separator, `\t`, "\t") }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// textFormat cuts records from text. next gives io.EOF at the end; the Where of
// its [*BadInput] is filled in by the reader.
type textFormat interface {
	start(c *lineReader) error             // at the beginning of each file
	next(c *lineReader, rec *Record) error // rec is only good without an error
}

func (s *TextSource) format() textFormat {
	switch s.Format {
	case FormatCSV:
		return &csvRows{keyName: s.Key, idName: s.ID, separator: s.comma()}
	case FormatLines:
		return plainLines{}
	}
	return newJSONLines(s.Key, s.ID)
}

// expand gives the files to read.
func (s *TextSource) expand() ([]string, error) {
	var files []string
	for _, p := range s.Paths {
		// a file may have a name that looks like a pattern
		if _, err := os.Lstat(p); err == nil || !absent(err) {
			files = append(files, p)
			continue
		}
		found, err := matches(p)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, &os.PathError{Op: "open", Path: p, Err: os.ErrNotExist}
		}
		files = append(files, found...)
	}
	return files, nil
}

// Fingerprint is of the settings and of each file's size, time of change and
// first 64 KiB. Where the files lie does not matter, because no task says it:
// another machine may have them elsewhere.
func (s *TextSource) Fingerprint(ctx context.Context) (string, error) {
	fixed, err := s.fixed(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	return fixed.print, nil
}

func (s *TextSource) maxLine() int { return cmp.Or(s.MaxLine, defaultMaxLine) }

// Open looks the files up and begins to read. They are opened one after another, as they are
// reached.
func (s *TextSource) Open(ctx context.Context, cursor []byte) (Reader, error) {
	fixed, err := s.fixed(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return fixed.Open(ctx, cursor)
}

// textReader reads the files of a TextSource one after another.
type textReader struct {
	source *TextSource
	files  []fixedFile
	total  int64
	format textFormat
	// encoding that the source names; nil: none
	encoding *encoding
	log      *slog.Logger
	begun    *input          // a command that runs and was not read from yet
	cutOff   map[string]bool // files whose last line had no line end

	file   int   // being read
	before int64 // size of the files before it
	in     *input
	lines  *lineReader
	rec    Record                // given last: one of the call would be on the heap
	behind textPosition          // behind the last record
	about  func(wait bool) error // see pausing
}

// textPosition is a place between two records of a file: what AppendCursor gives. It moves with
// records only, not with blank lines or the ends of files, so that a Next that is cancelled
// leaves it alone.
type textPosition struct {
	file      int
	pos, line int64
}

func (r *textReader) Next(ctx context.Context) (Record, error) {
	if err := r.fill(ctx, &r.rec); err != nil {
		return Record{}, err
	}
	return r.rec, nil
}

func (r *textReader) fill(ctx context.Context, rec *Record) error {
	if ctx.Err() != nil { // before anything moves
		return context.Cause(ctx)
	}
	for r.file < len(r.files) {
		if r.in == nil {
			if err := r.pause(); err != nil {
				return err
			}
			if err := r.openNext(ctx); err != nil {
				return err
			}
		}
		r.lines.ctx = ctx
		if r.in.live != nil {
			r.in.live.ctx, r.in.live.about = ctx, r.about
		}
		err := r.format.next(r.lines, rec)
		if err == nil {
			r.behind = textPosition{r.file, r.lines.at(), r.lines.line}
			return nil
		}
		if bad, ok := errors.AsType[*BadInput](err); ok {
			r.behind = textPosition{r.file, r.lines.at(), r.lines.line}
			bad.Where = r.Where()
			return bad
		}
		if err != io.EOF {
			return fmt.Errorf("%s:%d: %w", r.in.name, r.lines.line, r.in.judge(err))
		}
		if err := r.in.short(); err != nil {
			return err
		}
		if r.in.raw != nil { // the path may lead elsewhere by the end of the run
			if err := r.files[r.file].same(r.in.raw, false, "while it was read"); err != nil {
				return err
			}
		}
		if r.in.ends != nil {
			if err := r.pause(); err != nil {
				return err
			}
			if err := r.in.ends(ctx); err != nil {
				return err
			}
		}
		if r.lines.openEnd {
			if r.cutOff == nil {
				r.cutOff = map[string]bool{}
			}
			r.cutOff[r.in.name] = true
		}
		if err := r.in.close(); err != nil {
			return err
		}
		r.in = nil
		r.before += max(r.files[r.file].size, 0)
		r.file++
	}
	r.behind = textPosition{file: r.file}
	return io.EOF
}

// Where names the record that Next gave last.
func (r *textReader) Where() string { return fmt.Sprintf("%s:%d", r.in.name, r.lines.first) }

// Unchanged is an error if the files are not what was read. It is asked at the end, before the run
// is sealed.
func (r *textReader) Unchanged() error {
	for i := range r.files {
		if err := r.files[i].unchanged(r.cutOff[r.files[i].name]); err != nil {
			return err
		}
	}
	return nil
}

// openNext opens the file that is next and goes to where reading begins in it.
func (r *textReader) openNext(ctx context.Context) error {
	var in *input
	var err error
	switch {
	case len(r.source.Command) > 0:
		if err = r.start(ctx); err == nil {
			in, r.begun = r.begun, nil
			in.live.ctx = ctx
			err = in.decompress()
		}
	case r.files[r.file].name == stdin:
		in, err = openStream(ctx, "stdin", cmp.Or[io.Reader](r.source.Stdin, os.Stdin))
	default:
		in, err = openFile(ctx, &r.files[r.file], r.log)
	}
	if err != nil {
		if in != nil {
			in.close()
		}
		return judged(err)
	}
	cut, err := r.begin(ctx, in)
	if err != nil {
		in.close()
		return fmt.Errorf("%s: %w", in.name, in.judge(err))
	}
	cut.about = r.about
	r.in, r.lines = in, cut
	return nil
}

// start starts the command, unless it was started.
func (r *textReader) start(ctx context.Context) (err error) {
	if r.begun == nil && r.in == nil && r.file == 0 {
		r.begun, err = openCommand(ctx, r.source.Command, r.source.Env,
			cmp.Or[io.Writer](r.source.Stderr, os.Stderr))
	}
	return err
}

// Look starts the command; files are ready, pipes and devices may be silent.
func (r *textReader) Look(ctx context.Context) (ready bool, err error) {
	if len(r.source.Command) > 0 {
		return false, judged(r.start(ctx))
	}
	return !slices.ContainsFunc(r.files, func(f fixedFile) bool { return f.size < 0 }), nil
}

// Pauses makes it call about before it reads.
func (r *textReader) Pauses(about func(wait bool) error) { r.about = about }

// pause is called before anything that may take any time, such as opening a pipe or the end of a
// command.
func (r *textReader) pause() error {
	if r.about == nil {
		return nil
	}
	return r.about(true)
}

// begin makes the lineReader and moves it to where reading continues. The start of
// the file is read in any case: a CSV row means nothing without the header.
func (r *textReader) begin(ctx context.Context, in *input) (*lineReader, error) {
	if err := in.decode(r.encoding); err != nil {
		return nil, err
	}
	cut := newLineReader(in.text, r.source.maxLine())
	cut.ctx, cut.grown, cut.encoding = ctx, in.grown, r.encoding
	if r.encoding != nil && in.file != nil {
		cut.width = r.encoding.width
	}
	cut.skipBOM()
	if err := r.format.start(cut); err != nil {
		return nil, err
	}
	to := r.behind
	if to.file != r.file || to.pos <= cut.pos {
		return cut, nil
	}
	if in.file != nil {
		if to.pos > in.size && in.size >= 0 {
			if to.pos > in.size+1 || cut.width == nil {
				return nil, errCursor
			}
			to.pos = in.size // half a character of UTF-16 ends the file
		}
		if err := in.seek(to.pos); err != nil {
			return nil, err
		}
		cut.r = in.text
	} else if err := cut.discard(to.pos - cut.pos); err == io.EOF {
		return nil, fmt.Errorf("%w: it is shorter than when it was read before", ErrSourceChanged)
	} else if err != nil {
		return nil, err
	} else {
		cut.line = to.line
		return cut, nil
	}
	cut.jump(to.pos, to.line)
	return cut, nil
}

// AppendCursor writes the number of the file, the position in its uncompressed
// text and the number of its next line, as varints; of several files then the path. In a plain file
// that is a place in the file, unless the encoding has characters of several widths: then, and in a
// compressed file, it is one in the decoded text.
func (r *textReader) AppendCursor(dst []byte) []byte {
	at := r.behind
	dst = binary.AppendUvarint(dst, uint64(at.file))
	dst = binary.AppendUvarint(dst, uint64(at.pos))
	dst = binary.AppendUvarint(dst, uint64(at.line))
	if len(r.files) > 1 && at.file < len(r.files) {
		dst = append(dst, r.files[at.file].name...)
	}
	return dst
}

func (r *textReader) moveTo(cursor []byte) error {
	var at [3]uint64
	rest := cursor
	for i := range at {
		v, n := binary.Uvarint(rest)
		if n <= 0 || v > 1<<62 {
			return errCursor
		}
		at[i], rest = v, rest[n:]
	}
	if at[0] > uint64(len(r.files)) || len(rest) > 0 &&
		(len(r.files) == 1 || at[0] == uint64(len(r.files))) {
		return errCursor
	}
	r.file = int(at[0])
	// Another machine may have the files elsewhere, but not under other names. A cursor without a name
	// is that of a single file.
	if was := string(rest); was != "" && filepath.Base(was) != filepath.Base(r.files[r.file].name) {
		return fmt.Errorf("%w: it was reading %s, and file %d of its %d is %s",
			ErrSourceChanged, was, r.file+1, len(r.files), r.files[r.file].name)
	}
	for i := range r.files[:r.file] {
		r.before += max(r.files[i].size, 0)
	}
	r.behind = textPosition{r.file, int64(at[1]), int64(at[2])}
	return nil
}

var errCursor = errors.New("the saved position does not belong to this source")

func (r *textReader) Progress() (done, total int64) {
	done = r.before
	if r.in != nil {
		done += r.in.read.n
	}
	return done, r.total
}

func (r *textReader) Close() error {
	if r.begun != nil {
		defer r.begun.close()
	}
	if r.in == nil {
		return nil
	}
	return r.in.close()
}

// String names what is read, for logs.
func (s *TextSource) String() string {
	if len(s.Command) > 0 {
		return "command " + s.Command[0]
	}
	return strings.Join(s.Paths, ", ")
}
