package configfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/queuepump/queuepump/internal/jsonline"
	"github.com/queuepump/queuepump/pump"
)

// maxSize bounds the file: a hundred accounts with connection strings are 30 KiB, and a larger file
// is not a configuration.
const maxSize = 256 << 10

// File is a configuration that was read.
type File struct {
	Config pump.Config
	// Variables are the environment variables that the file refers to. They
	// are taken as secrets: a child process gets none of them.
	Variables []string
	// Admin may lack values that [File.CheckAdmin] then misses.
	Admin Admin
	// Page says what the page may do.
	Page Page
	// PerKey bounds the work on each key.
	PerKey pump.PerKey
	// Events is where to ask for the machine's scheduled events; empty: nowhere.
	Events string

	unset Errors
	path  string
	found string         // how path was found; empty if it was given
	lines map[string]int // field path, for example accounts[1].queues -> line
}

// secret is an account key or a signature. Keys have 88 characters and signatures 44: a text that
// is far shorter is neither, and would be found by chance.
var secret = regexp.MustCompile(`(?i)\baccountkey\s*=\s*([^;\s]{16,})|\bsig=([^;&\s]{16,})`)

// Secrets are the account keys and the signatures of shared access signatures in the configuration,
// as written and unescaped.
func (f *File) Secrets() (out []string) {
	for _, a := range f.Config.Accounts {
		texts := a.ConnectionString + ";" + a.Endpoint + ";" + a.TableEndpoint + ";" +
			a.BlobEndpoint
		for _, m := range secret.FindAllStringSubmatch(texts, -1) {
			out = append(out, m[1]+m[2])
			if plain, err := url.QueryUnescape(m[2]); err == nil && plain != m[2] {
				out = append(out, plain)
			}
		}
	}
	return out
}

// CheckAdmin is for commands that open an admin port: other commands do not need a variable that
// only the port needs, such as the address of a pod.
func (f *File) CheckAdmin() error {
	if len(f.unset) > 0 {
		return f.unset
	}
	return nil
}

// Admin says where the admin port is. Empty fields are not set.
type Admin struct {
	Listen    string // host:port, or "off"
	Advertise string // host:port where others reach it
	// Sample is how often one process looks at all queues; 0: not set; negative: never.
	Sample time.Duration
}

// SampleEvery is how often one process of the workload, with an admin port, looks at all queues.
// Unless the file says otherwise that is every 15 s, as often as Prometheus usually asks for
// metrics. 0: never.
func (a Admin) SampleEvery() time.Duration { return max(cmp.Or(a.Sample, 15*time.Second), 0) }

// Page says what the page that shows the workload may do, and where it is.
type Page struct {
	TokenFile string // of the token that people need to act there; empty: nobody can act
	ByCommand bool   // only `distributor page` serves it, not the admin ports
}

// Error is one thing wrong in the file.
type Error struct {
	File    string
	Line    int    // from 1; 0 if it is about the file as a whole
	Field   string // for example accounts[1].queues; may be empty
	Problem string
	Fix     string // may be empty
}

func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s += fmt.Sprintf(":%d", e.Line)
	}
	if e.Field != "" {
		s += ": " + e.Field
	}
	s += ": " + e.Problem
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Errors are all errors of a file, in the order of its lines.
type Errors []*Error

func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// PathVariable is the environment variable that names the configuration file, and SystemPath where
// it is looked for at last.
const (
	PathVariable = "QUEUEPUMP_CONFIG"
	SystemPath   = "/etc/queuepump/pump.yaml"

	localPath = "pump.yaml"
)

// Path gives the configuration file: the given one, else the one that the environment names, else
// pump.yaml of this directory, else that of the system. Found says for people how it was found; it
// is empty for a given one.
func Path(given string) (path, found string) {
	return pathBy(given, os.Getenv, func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

func pathBy(given string, env func(string) string, exists func(string) bool) (path, found string) {
	switch named := env(PathVariable); {
	case given != "" && given != named:
		return given, ""
	case named != "":
		return named, named + ", which " + PathVariable + " names"
	case !exists(localPath) && exists(SystemPath):
		return SystemPath, SystemPath + ", because there is no ./" + localPath
	}
	return localPath, localPath + " of this directory"
}

// Found says how the file was found, for people; empty if it was given.
func (f *File) Found() string { return f.found }

// Load reads the file at path, or at the [Path] of an empty one. Its errors are [Errors].
func Load(path string) (*File, error) {
	path, found := Path(path)
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(path, text, os.LookupEnv)
	if err == nil {
		f.found = found
	}
	return f, err
}

func read(path string) ([]byte, error) {
	fail := func(problem, fix string) error {
		return Errors{{File: path, Problem: problem, Fix: fix}}
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		problem := "there is no such file"
		if path == localPath {
			problem += ", nor " + SystemPath
		}
		return nil, fail(problem,
			"name it with --config or "+PathVariable+
				", or let `loadtest serve --write-config "+path+"` write one for simulated accounts")
	case err != nil:
		return nil, fail("cannot be opened: "+cause(err),
			"run this as a user who may read it, by sudo for one")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	switch {
	case err != nil:
		return nil, fail("cannot be read: "+cause(err), "")
	case len(text) > maxSize:
		return nil, fail(fmt.Sprintf("is larger than %d KiB", maxSize>>10),
			"a configuration is a few hundred bytes an account; is this the right file?")
	}
	// Windows' editors and shells put a byte order mark first. Their UTF-16 has one of its own, or
	// the zeros of plain letters.
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if wide := jsonline.Wide(text); wide != "" {
		return nil, fail("is "+wide, "save it as UTF-8")
	}
	return text, nil
}

// cause is the error without the path, which the message has already.
func cause(err error) string {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

func parse(path string, text []byte, env func(string) (string, bool)) (*File, error) {
	d := &decoder{File: &File{path: path, lines: map[string]int{}}, env: env}
	root, err := d.root(text)
	if err != nil {
		return nil, Errors{err}
	}
	d.group("", root, d.config())
	if len(d.errs) > 0 {
		slices.SortStableFunc(d.errs, func(a, b *Error) int { return cmp.Compare(a.Line, b.Line) })
		return nil, d.errs
	}
	slices.Sort(d.Variables)
	d.Variables = slices.Compact(d.Variables)
	return d.File, nil
}

// Has reports whether a path, such as accounts[1].queues, may stand in a configuration file.
func Has(path string) bool {
	root := path[:len(path)-len(strings.TrimLeft(path, "abcdefghijklmnopqrstuvwxyzE"))]
	return slices.ContainsFunc((&decoder{File: &File{}}).config().fields,
		func(f field) bool { return f.name == root })
}

// Locate turns a [pump.ConfigError] anywhere in err into an [Error] with the
// file and line of the field it names; another error is returned as it is.
func (f *File) Locate(err error) error {
	ce, ok := errors.AsType[*pump.ConfigError](err)
	if !ok {
		return err
	}
	return Errors{f.wrong(ce.Field, ce.Problem, ce.Fix)}
}

// wrong is an error of a field, with its line or, if the file lacks the field, that of the nearest
// one around it.
func (f *File) wrong(field, problem, fix string) *Error {
	e := &Error{File: f.path, Field: field, Problem: problem, Fix: fix}
	for field != "" && e.Line == 0 {
		e.Line = f.lines[field]
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
	return e
}
