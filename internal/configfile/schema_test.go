package configfile

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/queuepump/queuepump/pump"
)

var schemaWrite = flag.Bool("schema.write", false, "write docs/pump.schema.json")

const schemaPath = "../../docs/pump.schema.json"

// described is a line of the example in doc.go: the field, and what is said about it.
var described = regexp.MustCompile(`^//\t( *)(?:- )?(\w+):[^#]*(?:# (.*))?$`)

// descriptions are what doc.go says about each field, by its path.
func descriptions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	must(t, err)
	found := map[string]string{}
	var above []string
	for line := range strings.Lines(string(text)) {
		m := described.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		depth := len(m[1]) / 2
		if depth > 1 && above[0] == "accounts" { // the dash takes two columns
			depth--
		}
		above = append(above[:min(depth, len(above))], m[2])
		if path := strings.Join(above, "."); m[3] != "" && found[path] == "" {
			found[path] = m[3]
		}
	}
	return found
}

// choices are the values of fields that take few.
var choices = map[string][]any{
	"delivery":         {string(pump.AtLeastOnce), string(pump.Once)},
	"foreign.encoding": {"auto", "base64", "text"},
	"foreign.split":    {true, false},
	"budget.getCost":   {"messages", "request"},
	"page.onAdminPort": {true, false},
}

// schema is the JSON schema of a group of fields. Each value may be a reference to a variable.
func schema(d *decoder, path string, g group, said map[string]string) map[string]any {
	properties := map[string]any{}
	for _, f := range g.fields {
		at := strings.TrimPrefix(path+"."+f.name, ".")
		properties[f.name] = schemaOf(d, at, f, said)
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

func schemaOf(d *decoder, at string, f field, said map[string]string) (s map[string]any) {
	reference := map[string]any{"type": "string", "pattern": `\$\{`}
	orReference := func(is map[string]any) map[string]any {
		return map[string]any{"anyOf": []any{is, reference}}
	}
	switch f.to.(type) {
	case group:
		s = schema(d, at, f.to.(group), said)
	case item:
		of := map[string]any{"type": "string"}
		if at == "accounts" {
			of = schema(d, at, d.account(&pump.Account{}), said)
		}
		s = map[string]any{"type": "array", "minItems": 1, "items": of}
	case *bool:
		s = orReference(map[string]any{"type": "boolean"})
	case *int:
		s = orReference(map[string]any{"type": "integer", "minimum": 0})
	case *float64:
		s = orReference(map[string]any{"type": "number", "exclusiveMinimum": 0})
	case *time.Duration:
		s = orReference(map[string]any{"type": "string", "pattern": `^([0-9.]+(ns|us|µs|ms|s|m|h))+$`})
	default:
		s = map[string]any{"type": []string{"string", "number"}}
	}
	if only := choices[at]; only != nil {
		s = orReference(map[string]any{"enum": only})
	}
	_, list := f.to.(item)
	if text := said[at]; text != "" {
		s["description"] = text
	} else if f.fix != "" && !list {
		s["description"] = f.fix
	}
	return s
}

// TestTheSchemaOfPumpYAMLIsAsWritten keeps the schema for editors as the decoder has the fields.
func TestTheSchemaOfPumpYAMLIsAsWritten(t *testing.T) {
	d := &decoder{File: &File{}}
	s := schema(d, "", d.config(), descriptions(t))
	s["$schema"] = "http://json-schema.org/draft-07/schema#"
	s["title"] = "pump.yaml of queuepump"
	s["required"] = []string{"workload", "accounts"}
	text, err := json.MarshalIndent(s, "", "  ")
	must(t, err)
	text = append(text, '\n')
	if *schemaWrite {
		must(t, os.WriteFile(schemaPath, text, 0o644))
	}
	written, err := os.ReadFile(schemaPath)
	if err != nil || string(written) != string(text) {
		t.Errorf("docs/pump.schema.json is not what the decoder takes (%v): "+
			"write it with -schema.write, and read what changed", err)
	}
}
