// This file has the flags that say what a distributor reads: --input, --files, --list and
// --exec, with what belongs to them.

package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/configfile"
	"github.com/queuepump/queuepump/pump/source"
)

// SourceFlags say what to read.
type SourceFlags struct {
	input   []string
	files   []string
	list    string
	exec    string
	format  string
	key, id string
	comma   string
	// encoding of the text
	encoding string
	maxLine  int
	keepEnv  []string
}

// SourceHelp is the part of the help that says what a task is.
const SourceHelp = `Exactly one of --input, --files, --list and --exec says what to read:
  --input F     the lines of a file, of all files that a pattern matches, or of
                standard input (-). gzip and zstd are read as they are.
  --files DIR   every regular file under a directory: key and body of a task are its path
  --list F      the same for the paths that a file lists, one a line
  --exec CMD    the lines that a command prints; its words are split as by a
                shell, but no shell runs. It does not get the environment
                variables that the configuration refers to, that give flags or
                that are credentials for Azure; see --keep-env.

--format says what a line is; by default the file's name does:
  jsonl  a JSON value (.jsonl .ndjson .json, and where there is no name);
         the body is the line. --key and --id name fields, as in address.city
  csv    a row below a header row (.csv); the body is the row as a JSON object.
         --key and --id name columns, --csv-separator what stands between them
  lines  anything (.txt .list .log); body and key are the line
Text is UTF-8, or what --encoding says. Tasks with equal keys go to the same segment;
without --key the whole line is the key.`

// FormatHelp is the help of --format.
const FormatHelp = "the `FORMAT` of a line: jsonl, csv or lines (default: by the file's name)"

// CommaHelp is the help of --csv-separator.
const CommaHelp = "the `CHARACTER` between the columns of csv, such as ';' (default: a comma)"

// EncodingHelp is the help of --encoding.
const EncodingHelp = "the `ENCODING` of the text, such as windows-1252 or utf-16 (default: UTF-8)"

// Add adds the flags to a command.
func (f *SourceFlags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.input, "input", nil, "read the lines of `F`; may be repeated")
	flags.StringArrayVar(&f.files, "files", nil,
		"make a task of each file under `DIR`; may be repeated")
	flags.StringVar(&f.list, "list", "", "make a task of each path in `F`")
	flags.StringVar(&f.exec, "exec", "", "read the lines that `CMD` prints")
	flags.StringArrayVar(&f.keepEnv, "keep-env", nil,
		"an environment variable `NAME` that --exec gets although it is a credential or the "+
			"configuration's; may be repeated")
	flags.StringVar(&f.format, "format", "", FormatHelp)
	flags.StringVar(&f.key, "key", "",
		"the `FIELD` or column that tasks are segmented by (default: the whole line)")
	flags.StringVar(&f.id, "id", "", "the `FIELD` or column with your own name of the task")
	flags.StringVar(&f.comma, "csv-separator", "", CommaHelp)
	flags.StringVar(&f.encoding, "encoding", "", EncodingHelp)
	flags.IntVar(&f.maxLine, "max-line", 0, "the longest line in bytes (default 1 MiB)")
}

// Source makes the source that the flags ask for.
func (f *SourceFlags) Source() (source.Source, error) {
	given := 0
	for _, is := range []bool{len(f.input) > 0, len(f.files) > 0, f.list != "", f.exec != ""} {
		if is {
			given++
		}
	}
	text := f.key+f.id+f.format+f.comma != "" || f.maxLine != 0
	switch {
	case given == 0:
		return nil, Usage("nothing says what to read; give --input, --files, --list or --exec")
	case given > 1:
		return nil, Usage("only one of --input, --files, --list and --exec can be given")
	case len(f.keepEnv) > 0 && f.exec == "":
		return nil, Usage("--keep-env has no effect without --exec")
	case text && (len(f.files) > 0 || f.list != ""):
		return nil, Usage("--format, --key, --id, --csv-separator and --max-line belong to --input " +
			"and --exec")
	case f.encoding != "" && len(f.files) > 0:
		return nil, Usage("--encoding has no effect with --files, whose paths are the tasks")
	}
	switch {
	case len(f.files) > 0:
		return source.Files(f.files...), nil
	case f.list != "":
		return &source.TextSource{
			Format: source.FormatLines, Paths: []string{f.list}, Encoding: f.encoding,
		}, nil
	}
	s := &source.TextSource{
		Paths: f.input, Key: f.key, ID: f.id, MaxLine: f.maxLine,
		Separator: f.comma, Encoding: f.encoding,
	}
	if f.exec != "" {
		argv, err := Split(f.exec)
		if err != nil {
			return nil, Usage("--exec: %w", err)
		}
		s.Command = argv
	}
	var err error
	s.Format, err = FormatOf(f.format, f.input)
	return s, err
}

// ReadsStdin gives the flag that names standard input, under any name, or nothing.
func (f *SourceFlags) ReadsStdin() string {
	for _, path := range f.input {
		if isStdin(path) {
			return "--input " + path
		}
	}
	if f.list != "" && isStdin(f.list) {
		return "--list " + f.list
	}
	return ""
}

// Repeatable reports whether the named input can be read again, so that its beginning may be looked
// at.
func (f *SourceFlags) Repeatable() bool { return f.exec == "" && !slices.Contains(f.input, "-") }

func isStdin(path string) bool {
	if path == "-" {
		return true
	}
	switch path = filepath.ToSlash(filepath.Clean(path)); path {
	case "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/thread-self/fd/0":
		return true
	}
	return path == fmt.Sprintf("/proc/%d/fd/0", os.Getpid())
}

// RunsCommand reports whether the input is the output of a command.
func (f *SourceFlags) RunsCommand() bool { return f.exec != "" }

// Hide keeps credentials from a command whose output is read. This process keeps its own
// environment: a managed identity needs it for each new token.
func (f *SourceFlags) Hide(src source.Source, file *configfile.File) {
	if s, ok := src.(*source.TextSource); ok {
		s.Env = ChildEnv(file, f.keepEnv)
	}
}

// FormatOf is the format that was asked for, or else the format on which the names of all files
// agree.
func FormatOf(asked string, paths []string) (source.Format, error) {
	switch asked {
	case "":
	case "jsonl", "csv", "lines":
		return source.Format(asked), nil
	default:
		return "", Usage("--format: %q is not a format; use jsonl, csv or lines", asked)
	}
	var format source.Format
	for i, p := range paths {
		this := formatByName(p)
		switch {
		case this == "":
			return "",
				Usage("the name of %s does not say what its lines are; give --format jsonl, csv or lines",
					p)
		case i > 0 && this != format:
			return "",
				Usage("the names of %s and %s say different formats; give "+
					"--format, or distribute them apart",
					paths[0], p)
		}
		format = this
	}
	return cmp.Or(format, source.FormatJSONLines), nil // a command has no name
}

func formatByName(path string) source.Format {
	if path == "-" {
		return source.FormatJSONLines
	}
	name := strings.ToLower(filepath.Base(path))
	for _, packed := range []string{".gz", ".zst", ".zstd"} {
		name = strings.TrimSuffix(name, packed)
	}
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson", ".json":
		return source.FormatJSONLines
	case ".csv":
		return source.FormatCSV
	case ".txt", ".list", ".log":
		return source.FormatLines
	}
	return ""
}
