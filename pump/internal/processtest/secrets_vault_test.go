package processtest

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/queuepump/queuepump/codec"
	"github.com/queuepump/queuepump/loadtest/azsim"
	"github.com/queuepump/queuepump/pump/internal/row"
	"github.com/queuepump/queuepump/pump/storage"
	"github.com/queuepump/queuepump/pump/storage/azure"
)

// windowLength is how long a part of a secret counts as a leak: no shorter one is of use.
const windowLength = 16

// vault holds planted secrets and finds them in texts, whole or in part, in every
// form that a program may write them in.
type vault struct {
	windows map[string]string // a part of a form -> whose it is
}

func (v *vault) plant(name, secret string) {
	if v.windows == nil {
		v.windows = map[string]string{}
	}
	forms := []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), html.EscapeString(secret), hex.EncodeToString([]byte(secret)),
		percentEscape.ReplaceAllStringFunc(url.QueryEscape(secret), strings.ToLower), // as some clients write it
	}
	quoted, _ := json.Marshal(secret) // a string never fails
	forms = append(forms, string(quoted[1:len(quoted)-1]))
	for shift := range 3 { // wherever in an encoded text it begins
		encoded := base64.StdEncoding.EncodeToString(append(make([]byte, shift), secret...))
		forms = append(forms, encoded[(shift*8+5)/6:len(encoded)-4])
	}
	if raw, err := base64.StdEncoding.DecodeString(secret); err == nil {
		forms = append(forms, string(raw), hex.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw))
	}
	for _, form := range forms {
		for i := 0; i+windowLength <= len(form); i++ {
			v.windows[form[i:i+windowLength]] = name
		}
	}
}

var percentEscape = regexp.MustCompile(`%[0-9A-F]{2}`)

// find gives the name of a secret that is in the text in part, and where.
func (v *vault) find(text string) (name, around string) {
	for i := 0; i+windowLength <= len(text); i++ {
		if name, found := v.windows[text[i:i+windowLength]]; found {
			return name, text[max(0, i-150):min(len(text), i+60)]
		}
	}
	return "", ""
}

// evidence is everything that was written, by where it was.
type evidence struct {
	t     *testing.T
	vault *vault
	mu    sync.Mutex // guards texts
	texts map[string]string
}

func (e *evidence) add(where, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.texts == nil {
		e.texts = map[string]string{}
	}
	e.texts[where] += text + "\n"
}

// output takes what a process that has ended wrote.
func (e *evidence) output(p *process) {
	name := p.name + " " + strings.Join(p.cmd.Args[1:min(len(p.cmd.Args), 3)], " ")
	e.add("standard output of "+name, p.out.String())
	e.add("standard error of "+name, p.log.String())
}

// judge fails the test for every place in which a secret is. Of the texts that
// must be among the evidence, wants are parts: a search in nothing finds nothing.
func (e *evidence) judge(wants ...string) {
	e.t.Helper()
	size := 0
	all := ""
	for _, where := range slices.Sorted(maps.Keys(e.texts)) {
		text := e.texts[where]
		size += len(text)
		all += where + "\n" + text
		if name, around := e.vault.find(text); name != "" {
			e.t.Errorf("%s shows %s: %q", where, name, around)
		}
	}
	for _, want := range wants {
		if !strings.Contains(all, want) {
			e.t.Errorf("%q is not among what was written", want)
		}
	}
	e.t.Logf("%d bytes from %d places", size, len(e.texts))
}

// files takes what stands in the files of a directory but for those left out.
func (e *evidence) files(dir string, leave ...string) {
	e.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || slices.Contains(leave, path) {
			return err
		}
		text, err := os.ReadFile(path)
		e.add("file "+filepath.Base(path), string(text))
		return err
	})
	must(e.t, err)
}

// pages takes what an admin port shows.
func (e *evidence) pages(address string) {
	e.t.Helper()
	for _, page := range []string{
		"/", "/page/", "/healthz", "/readyz", "/state", "/metrics", "/debug/pprof/", "/debug/pprof/goroutine?debug=2", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap?debug=1", "/debug/pprof/heap",
		"/debug/pprof/allocs?debug=1", "/debug/pprof/threadcreate?debug=1", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1", "/nudge", "/no-such-page",
	} {
		if status, body := ask(e.t, address, page); status != 0 {
			e.add("page "+page, body)
		}
	}
}

// rows takes everything in the tables and queues of an account: every property of
// every row, the text of every message, and what is packed in it.
func (e *evidence) rows(sim *azsim.Sim, name string) {
	e.t.Helper()
	a, err := azure.Open(azure.Options{ConnectionString: sim.ConnectionString(name), Transport: sim.Transport()})
	must(e.t, err)
	for row, err := range a.Table(row.TableName).Query(e.t.Context(), storage.Query{}) {
		if storage.Is(err, storage.Missing) {
			break
		}
		must(e.t, err)
		for property, value := range row.Properties {
			if b, ok := value.([]byte); ok {
				value = string(b)
			}
			e.add("row "+row.Partition+"/"+row.Row, fmt.Sprint(property, " = ", value))
		}
	}
	queues, err := a.Queues(e.t.Context(), "")
	must(e.t, err)
	for _, q := range queues {
		for {
			messages, err := a.Queue(q).Get(e.t.Context(), storage.MaxGet, storage.MaxVisibility)
			must(e.t, err)
			if len(messages) == 0 {
				break
			}
			for _, m := range messages {
				e.add("message of "+q, string(m.Text))
				if h, err := codec.ReadHeader(m.Text); err == nil && h.Cause != nil {
					e.add("cause in "+q, fmt.Sprintf("%+v", *h.Cause))
				}
				if env, err := codec.Open(m.Text, codec.Limits{}); err == nil {
					for _, task := range env.Tasks {
						e.add("task in "+q, fmt.Sprintf("%s %s %s", task.Key, task.ID, task.Body))
					}
					env.Release()
				}
			}
		}
	}
}
