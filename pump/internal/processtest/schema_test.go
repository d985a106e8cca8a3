package processtest

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/capacity"
	"github.com/queuepump/queuepump/internal/operate"
	"github.com/queuepump/queuepump/internal/taskline"
	"github.com/queuepump/queuepump/loadtest/report"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/doctor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/workloads"
)

const outputSchema = "../../../docs/output.schema.json"

// printed is what commands print with --json; a line each where there are several, and one of two
// where both stand here. Commands of the processor that are not here are the distributor's.
var printed = map[string]any{
	"distributor accounts add":       accounts.Change{},
	"distributor accounts drain":     accounts.Change{},
	"distributor accounts list":      operate.AccountList{},
	"distributor accounts remove":    accounts.Change{},
	"distributor counts":             operate.KeyLine{},
	"distributor doctor":             doctor.Report{},
	"distributor gate close":         gates.Change{},
	"distributor gate list":          operate.GateList{},
	"distributor gate open":          gates.Change{},
	"distributor gate remove":        operate.GateRemoved{},
	"distributor ids next":           operate.Numbers{},
	"distributor page":               operate.PageAddress{},
	"distributor peek":               operate.QueueLine{},
	"distributor plan":               capacity.Plan{},
	"distributor quarantine drop":    quarantine.Outcome{},
	"distributor quarantine list":    quarantine.Message{},
	"distributor quarantine redrive": quarantine.Outcome{},
	"distributor quarantine show":    operate.MessageLine{},
	"distributor results":            runs.ResultsRead{},
	"distributor run":                distributor.Summary{},
	"distributor runs end":           runs.Info{},
	"distributor runs list":          operate.RunList{},
	"distributor runs repair":        distributor.RepairSummary{},
	"distributor runs show":          runs.Info{},
	"distributor runs wait":          pump.Completion{},
	"distributor status":             operate.Status{},
	"distributor workload delete":    workloads.Deletion{},
	"distributor workload log":       []workloads.LogEntry{},
	"distributor workload pause":     []any{workloads.PauseChange{}, workloads.PartChange{}},
	"distributor workload resume":    []any{workloads.PauseChange{}, workloads.PartChange{}},
	"distributor workload set":       workloads.SettingsChange{},
	"distributor workload show":      workloads.Info{},
	"loadtest report":                []any{report.Result{}, report.Comparison{}},
	"loadtest run":                   report.Result{},
	"processor /state":               processor.State{},
	"processor check":                taskline.Checked{},
	"processor run":                  processor.Summary{},
}

var (
	jsonFlag     = regexp.MustCompile(`(?m)^ +--json\b`)
	helpCommands = regexp.MustCompile(`(?m)^  ([a-z][\w-]*) +\S`)
)

// commandsWithJSON are the commands that have --json, by the help of the binaries.
func commandsWithJSON(t *testing.T) (found []string) {
	t.Helper()
	todo := []string{"distributor", "loadtest", "processor"}
	for ; len(todo) > 0; todo = todo[1:] {
		words := append(strings.Fields(todo[0]), "--help-all")
		help, err := exec.Command(filepath.Join(bin, words[0]), words[1:]...).Output()
		must(t, err)
		use, flags, _ := strings.Cut(string(help), "\nFlags:\n")
		if jsonFlag.MatchString(flags) {
			found = append(found, todo[0])
		}
		_, list, _ := strings.Cut(use, " [command]\n")
		for _, m := range helpCommands.FindAllStringSubmatch(list, -1) {
			if m[1] != "help" {
				todo = append(todo, todo[0]+" "+m[1])
			}
		}
	}
	return found
}

// twin is the distributor's command that the processor has, too.
func twin(command string) string { return strings.Replace(command, "processor ", "distributor ", 1) }

type schema = map[string]any

// schemas are the definitions of a document, by command and by the name of a Go type.
type schemas map[string]schema

// of is the JSON schema of what encoding/json makes of a type. What a reader always finds is
// required; a later version may print more.
func (d schemas) of(t reflect.Type) schema {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return schema{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.Number]():
		return schema{"type": "number"}
	case t == reflect.TypeFor[json.RawMessage]():
		return schema{}
	case t == reflect.TypeFor[[]byte]():
		return schema{"type": []any{"string", "null"}, "contentEncoding": "base64"}
	case t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return schema{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schema{"anyOf": []any{d.of(t.Elem()), schema{"type": "null"}}}
	case reflect.Slice, reflect.Array:
		return schema{"type": []any{"array", "null"}, "items": d.of(t.Elem())}
	case reflect.Map:
		return schema{"type": []any{"object", "null"}, "additionalProperties": d.of(t.Elem())}
	case reflect.Struct:
		s := schema{"type": "object", "properties": schema{}, "required": []any{}}
		if t.Name() == "" {
			d.fields(t, s)
			return s
		} else if d[t.String()] == nil {
			d[t.String()] = s
			d.fields(t, s)
		}
		return schema{"$ref": "#/definitions/" + t.String()}
	case reflect.Interface:
		return schema{}
	}
	if kind := kinds[t.Kind()]; kind != "" {
		return schema{"type": kind}
	}
	return schema{"type": "integer"}
}

// kinds are the types of JSON by those of Go.
var kinds = map[reflect.Kind]string{
	reflect.Map: "object", reflect.Slice: "array", reflect.String: "string", reflect.Bool: "boolean",
	reflect.Float64: "number", reflect.Invalid: "null",
}

func (d schemas) fields(t reflect.Type, s schema) {
	for f := range t.Fields() {
		name, how, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := f.Type
		if of.Kind() == reflect.Pointer && f.Anonymous {
			of = of.Elem()
		}
		switch {
		case f.Anonymous && name == "" && of.Kind() == reflect.Struct:
			d.fields(of, s)
			continue
		case name == "-" || !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		s["properties"].(schema)[name] = d.of(f.Type)
		required := s["required"].([]any)
		if !strings.Contains(how, "omit") && !slices.Contains(required, any(name)) { // of what is embedded
			s["required"] = append(required, name)
		}
	}
}

// TestTheSchemaOfOutputsIsAsWritten keeps docs/output.schema.json as the types of what is printed,
// with each command that has --json.
func TestTheSchemaOfOutputsIsAsWritten(t *testing.T) {
	all := schemas{}
	commands := append(commandsWithJSON(t), "processor /state")
	for _, what := range commands {
		of := cmp.Or(printed[what], printed[twin(what)])
		switch two, is := of.([]any); {
		case is:
			all[what] = schema{"anyOf": []any{all.of(reflect.TypeOf(two[0])), all.of(reflect.TypeOf(two[1]))}}
		case of == nil:
			t.Errorf("%s has --json, and nothing here says what it prints", what)
		default:
			all[what] = all.of(reflect.TypeOf(of))
		}
	}
	for what := range printed {
		if !slices.Contains(commands, what) {
			t.Errorf("%s is not a command with --json", what)
		}
	}
	text, err := json.MarshalIndent(schema{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": "what queuepump prints with --json, by command",
		"definitions": all,
	}, "", " ")
	must(t, err)
	text = append(text, '\n')
	if *writeGolden {
		must(t, os.WriteFile(outputSchema, text, 0o644))
	}
	if written, err := os.ReadFile(outputSchema); err != nil || string(written) != string(text) {
		t.Errorf("%s is not what is printed (%v): write it with -scripts.write, and read what changed", outputSchema, err)
	}
	s := schema{"type": "object", "properties": schema{"a": schema{"type": "integer"}}, "required": []any{"a"}}
	for text, want := range map[string]string{
		`{"a":1}`: "", `{}`: ".a is missing", `{"a":1.5}`: ".a is 1.5", `{"a":1,"b":2}`: ".b is not in the schema",
	} {
		var v any
		must(t, json.Unmarshal([]byte(text), &v))
		if got := strings.Join(schemas(nil).unlike(s, "", v), ";"); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// definitions are those of the schema, by command and by type.
func definitions(t *testing.T) schemas {
	t.Helper()
	var all struct{ Definitions schemas }
	must(t, json.Unmarshal([]byte(readText(t, outputSchema)), &all))
	return all.Definitions
}

// requirePrinted checks what a command printed against its schema, which is that of the longest name
// that the command line begins with. It gives this name.
func requirePrinted(t *testing.T, what string, v any) (command string) {
	t.Helper()
	all, best := definitions(t), ""
	for name := range all {
		if len(name) > len(best) && strings.HasPrefix(what+" ", name+" ") {
			best = name
		}
	}
	if best == "" {
		t.Errorf("%s has no schema of what %q prints", outputSchema, what)
		return ""
	}
	for _, problem := range all.unlike(all[best], "", v) {
		t.Errorf("%s: %s", what, problem)
	}
	return best
}

// unlike says how a value differs from a schema: in a type, a key that is missing, or one more.
func (d schemas) unlike(s schema, path string, v any) (problems []string) {
	either, _ := s["anyOf"].([]any)
	for _, one := range slices.Backward(either) {
		if problems = d.unlike(one.(schema), path, v); len(problems) == 0 {
			return nil
		}
	}
	if len(either) > 0 {
		return problems // of the first
	}
	if to, is := s["$ref"].(string); is {
		s = d[strings.TrimPrefix(to, "#/definitions/")]
	}
	want, _ := s["type"].([]any)
	if one, is := s["type"].(string); is {
		want = []any{one}
	}
	is := kinds[reflect.ValueOf(v).Kind()]
	if n, whole := v.(float64); whole && n == float64(int64(n)) && slices.Contains(want, any("integer")) {
		is = "integer"
	}
	if len(want) > 0 && !slices.Contains(want, any(is)) {
		return []string{fmt.Sprintf("%s is %v, want %v", path, v, want)}
	}
	switch v := v.(type) {
	case []any:
		items, _ := s["items"].(schema)
		for _, e := range v {
			problems = append(problems, d.unlike(items, path+"[]", e)...)
		}
	case schema:
		properties, _ := s["properties"].(schema)
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, there := v[name.(string)]; !there {
				problems = append(problems, fmt.Sprintf("%s.%s is missing", path, name))
			}
		}
		for name, e := range v {
			of, known := properties[name].(schema)
			if more, any := s["additionalProperties"].(schema); !known && any {
				of, known = more, true
			}
			if !known && len(s) > 0 {
				problems = append(problems, fmt.Sprintf("%s.%s is not in the schema", path, name))
				continue
			}
			problems = append(problems, d.unlike(of, path+"."+name, e)...)
		}
	}
	return problems
}
