package processtest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/capacity"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/accounts"
	"github.com/queuepump/queuepump/pump/distributor"
	"github.com/queuepump/queuepump/pump/doctor"
	"github.com/queuepump/queuepump/pump/gates"
	"github.com/queuepump/queuepump/pump/processor"
	"github.com/queuepump/queuepump/pump/quarantine"
	"github.com/queuepump/queuepump/pump/runs"
	"github.com/queuepump/queuepump/pump/status"
	"github.com/queuepump/queuepump/pump/workloads"
)

const outputSchema = "../../../docs/output.schema.json"

// printed is what commands print with --json; a line each where there are several, and one of two
// where both stand here.
var printed = map[string]any{
	"distributor accounts list": struct {
		Workload string         `json:"workload"`
		Accounts []accounts.Use `json:"accounts"`
	}{},
	"distributor accounts drain": accounts.Change{},
	"distributor counts": struct {
		Key       string      `json:"key,omitempty"`
		KeyBase64 []byte      `json:"keyBase64,omitempty"`
		Count     uint64      `json:"count"`
		Sum       json.Number `json:"sum,omitempty"`
	}{},
	"distributor doctor": doctor.Report{},
	"distributor gate":   gates.Change{},
	"distributor gate list": struct {
		Workload string         `json:"workload"`
		Gates    []gates.Status `json:"gates"`
	}{},
	"distributor ids next": struct {
		Name  string `json:"name"`
		First string `json:"first"`
		Last  string `json:"last"`
	}{},
	"distributor plan":            capacity.Plan{},
	"distributor quarantine":      quarantine.Outcome{},
	"distributor quarantine list": quarantine.Message{},
	"distributor results":         runs.ResultsRead{},
	"distributor run":             distributor.Summary{},
	"distributor runs list": struct {
		Workload string      `json:"workload"`
		Runs     []runs.Info `json:"runs"`
	}{},
	"distributor runs show":   runs.Info{},
	"distributor runs wait":   pump.Completion{},
	"distributor runs repair": distributor.RepairSummary{},
	"distributor status": struct {
		Headline admin.Headline `json:"headline"`
		*status.Status
	}{},
	"distributor workload":        []any{workloads.PauseChange{}, workloads.PartChange{}},
	"distributor workload delete": workloads.Deletion{},
	"distributor workload log":    []workloads.LogEntry{},
	"distributor workload set":    workloads.SettingsChange{},
	"distributor workload show":   workloads.Info{},
	"processor /state":            processor.State{},
	"processor run":               processor.Summary{},
}

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
		if !strings.Contains(how, "omit") {
			s["required"] = append(s["required"].([]any), name)
		}
	}
}

// TestTheSchemaOfOutputsIsAsWritten keeps docs/output.schema.json as the types of what is printed.
func TestTheSchemaOfOutputsIsAsWritten(t *testing.T) {
	all := schemas{}
	for what, of := range printed {
		if two, is := of.([]any); is {
			all[what] = schema{"anyOf": []any{all.of(reflect.TypeOf(two[0])), all.of(reflect.TypeOf(two[1]))}}
			continue
		}
		all[what] = all.of(reflect.TypeOf(of))
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

// requirePrinted checks what a command printed against the schema of the longest name that it begins
// with.
func requirePrinted(t *testing.T, what string, v any) {
	t.Helper()
	var all struct{ Definitions schemas }
	must(t, json.Unmarshal([]byte(readText(t, outputSchema)), &all))
	best := ""
	for name := range all.Definitions {
		if len(name) > len(best) && strings.HasPrefix(what+" ", name+" ") {
			best = name
		}
	}
	if best == "" {
		t.Errorf("%s has no schema of what %q prints", outputSchema, what)
		return
	}
	for _, problem := range all.Definitions.unlike(all.Definitions[best], "", v) {
		t.Errorf("%s: %s", what, problem)
	}
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
