package harness

import "github.com/waybill-mq/waybill/pkg/protocol"

// Set changes the mesh's settings.
func (m *Mesh) Set(change protocol.SettingsChange) {
	m.t.Helper()
	must[protocol.Settings](m, protocol.SubjectSettingsChange, change)
}

// Observer is an observer or a group by its queue, and whether it is listed.
func (m *Mesh) Observer(queue string) (info protocol.ObserverInfo, listed bool) {
	m.t.Helper()
	page := must[protocol.ObserversPage](m, protocol.SubjectObservers, protocol.ObserversRequest{Queue: queue})
	if len(page.Observers) == 0 {
		return info, false
	}
	return page.Observers[0], true
}

// AwaitObserver waits until an observer or a group is in that state.
func (m *Mesh) AwaitObserver(queue string, state protocol.ObserverState) (info protocol.ObserverInfo) {
	m.t.Helper()
	Await(m.t, queue+" is "+string(state), func() bool {
		var listed bool
		info, listed = m.Observer(queue)
		return listed && info.State == state
	})
	return info
}

// RemoveObserver removes an observer or a group once.
func (m *Mesh) RemoveObserver(queue string) (protocol.ObserverRemoved, error) {
	return askWithin[protocol.ObserverRemoved](m.t.Context(), m.nc, Guard, protocol.SubjectObserverRemove, protocol.ObserverRemoveRequest{Queue: queue})
}
