package config

import (
	"maps"
	"slices"
)

// Schema is the JSON schema of a configuration file with these further keys.
func Schema(further []Key) map[string]any {
	schema := section(append(Keys(), further...))
	schema["title"] = "Waybill's configuration"
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$defs":   map[string]any{"configuration": schema},
		"anyOf": []any{
			map[string]any{"$ref": "#/$defs/configuration"},
			map[string]any{"type": "array", "items": map[string]any{"$ref": "#/$defs/configuration"}, "minItems": 1, "maxItems": 1},
			map[string]any{"type": "null"},
		},
	}
}

func section(keys []Key) map[string]any {
	properties := make(map[string]any, len(keys))
	for i := range keys {
		properties[keys[i].Name] = keys[i].schema()
	}
	return map[string]any{"type": []any{"object", "null"}, "properties": properties, "additionalProperties": false}
}

func (k *Key) schema() map[string]any {
	schema := map[string]any{}
	switch k.Kind {
	case Text:
		schema["type"] = "string"
	case Number:
		schema = map[string]any{"type": "integer", "minimum": k.Least, "maximum": k.Most}
	case Flag:
		schema["type"] = "boolean"
	case Section:
		schema = section(k.Keys)
	case Named:
		schema = map[string]any{"type": []any{"object", "null"}, "additionalProperties": section(k.Keys)}
	case Choice:
		schema = k.choiceSchema()
	}
	if len(k.Allowed) > 0 {
		schema["enum"] = k.Allowed
	}
	if k.Default != nil && k.Kind != Choice {
		schema["default"] = k.Default
	}
	if k.Doc != "" {
		schema["description"] = k.Doc
	}
	return schema
}

// choiceSchema has the keys of config depend on the name.
func (k *Key) choiceSchema() map[string]any {
	var each []any
	for _, choice := range slices.Sorted(maps.Keys(k.Choices)) {
		names := []any{choice}
		for _, alias := range slices.Sorted(maps.Keys(k.Aliases)) {
			if k.Aliases[alias] == choice {
				names = append(names, alias)
			}
		}
		is := map[string]any{"properties": map[string]any{choiceName: map[string]any{"enum": names}}}
		if choice != k.Default {
			is["required"] = []any{choiceName}
		}
		each = append(each, map[string]any{
			"if":   is,
			"then": map[string]any{"properties": map[string]any{choiceConfig: section(k.Choices[choice])}},
		})
	}
	return map[string]any{
		"type": []any{"object", "null"}, "additionalProperties": false, "allOf": each,
		"properties": map[string]any{
			choiceName:   map[string]any{"enum": k.choices(), "default": k.Default},
			choiceConfig: map[string]any{},
		},
	}
}
