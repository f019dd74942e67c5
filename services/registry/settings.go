package registry

import (
	"context"

	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// The settings are a part of the configuration that versions before it had
// alone: they are still read, changed and told by themselves.

// readSettings answers with the settings there are.
func (s *Service) readSettings(context.Context, protocol.Empty) (protocol.Settings, error) {
	return s.configuration.settings(), nil
}

// changeSettings changes the configuration.
func (s *Service) changeSettings(ctx context.Context, change protocol.SettingsChange) (protocol.Settings, error) {
	if _, err := change.Apply(protocol.DefaultSettings()); err != nil {
		return protocol.Settings{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	_, err := s.editConfig(ctx, configEdit{change: merging(config.SettingsDocument(change), false)})
	return s.configuration.settings(), err
}
