package config

import (
	"maps"
	"slices"
)

// typeKey is what JSON schema calls a kind.
const (
	typeKey    = "type"
	typeObject = "object"
	typeNull   = "null"
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
			map[string]any{typeKey: "array", "items": map[string]any{"$ref": "#/$defs/configuration"}, "minItems": 1, "maxItems": 1},
			map[string]any{typeKey: typeNull},
		},
	}
}

func section(keys []Key) map[string]any {
	properties := make(map[string]any, len(keys))
	var required []any
	for i := range keys {
		properties[keys[i].Name] = keys[i].schema()
		if keys[i].Required {
			required = append(required, keys[i].Name)
		}
	}
	schema := map[string]any{typeKey: []any{typeObject, typeNull}, "properties": properties, "additionalProperties": false}
	if required != nil {
		schema[typeKey], schema["required"] = typeObject, required
	}
	return schema
}

func (k *Key) schema() map[string]any {
	schema := map[string]any{}
	switch k.Kind {
	case Text:
		schema[typeKey] = "string"
	case Number:
		schema = map[string]any{typeKey: "integer", "minimum": k.Least, "maximum": k.Most}
	case Flag:
		schema[typeKey] = "boolean"
	case Section:
		schema = section(k.Keys)
	case Named:
		schema = map[string]any{typeKey: []any{typeObject, typeNull}, "additionalProperties": k.entry().schema()}
	case List:
		schema = map[string]any{typeKey: []any{"array", typeNull}, "items": k.entry().schema()}
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
	each := make([]any, 0, len(k.Choices))
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
	name := map[string]any{"enum": k.choices()}
	if k.Default != nil {
		name["default"] = k.Default
	}
	properties := map[string]any{choiceName: name, choiceConfig: map[string]any{}}
	for i := range k.Keys {
		properties[k.Keys[i].Name] = k.Keys[i].schema()
	}
	schema := map[string]any{typeKey: []any{typeObject, typeNull}, "additionalProperties": false, "allOf": each, "properties": properties}
	if k.Default == nil {
		schema[typeKey], schema["required"] = typeObject, []any{choiceName}
	}
	return schema
}
