package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// Envelope is a message as JSON, with all that is said of it.
type Envelope struct {
	Execution     string            `json:"execution,omitempty" doc:"With route: the queue it goes to."`
	Route         string            `json:"route,omitempty"`
	Topic         string            `json:"topic,omitempty" doc:"Instead of execution and route."`
	Payload       string            `json:"payload,omitempty" doc:"The payload, if it is text."`
	PayloadBase64 []byte            `json:"payload_base64,omitempty" doc:"Instead of payload: any bytes."`
	Headers       map[string]string `json:"headers,omitempty" doc:"Headers of the message, delivered as they are, case and all."`
	DedupID       string            `json:"dedup_id,omitempty" minLength:"1" doc:"A second publish with this id, to the same queue or topic within two minutes, has no effect."`
	DelayMs       int64             `json:"delay_ms,omitempty" minimum:"0" doc:"Deliver it this many milliseconds after now."`
	DeliverAt     time.Time         `json:"deliver_at,omitzero" doc:"Deliver it at this time."`
	Group         string            `json:"group,omitempty" minLength:"1" doc:"The message's group, for FIFO queues."`
	Priority      uint8             `json:"priority,omitempty" maximum:"255" doc:"The higher, the sooner, in a queue with priorities."`
}

type batchInput struct {
	Body struct {
		Messages []Envelope `json:"messages" minItems:"1" maxItems:"1000" nullable:"false"`
	}
}

// batchAnswer says what became of each message, in their order.
type batchAnswer struct {
	Results []batchResult `json:"results" nullable:"false"`
	Failed  int           `json:"failed" doc:"How many of them were not stored, or not known to be."`
}

// batchResult has one of its fields.
type batchResult struct {
	Ack   *protocol.PublishAck `json:"ack,omitempty"`
	Error *protocol.Error      `json:"error,omitempty"`
}

func (s *Service) batch(api huma.API) {
	operation(api, huma.Operation{
		OperationID: "publish-batch", Method: http.MethodPost, Path: "/messages", Tags: []string{"publish"},
		Summary:      "Publish messages to queues and topics",
		Description:  "Each message is stored or refused for itself: the status is 200, and the results say which. Messages to one queue keep their order.",
		MaxBodyBytes: s.nc.MaxPayload(),
	}, s.publishBatch)
}

func (s *Service) publishBatch(ctx context.Context, in *batchInput) (*answer[batchAnswer], error) {
	out := batchAnswer{Results: make([]batchResult, len(in.Body.Messages))}
	messages, places := []client.Message{}, []int{}
	for i := range in.Body.Messages {
		m, err := in.Body.Messages[i].message()
		if err != nil {
			out.Results[i].Error = protocol.AsError(err)
			continue
		}
		messages, places = append(messages, m), append(places, i)
	}
	results, _ := s.client.PublishMany(ctx, messages) // each has its error
	for i, r := range results {
		out.Results[places[i]] = batchResult{Ack: r.Receipt, Error: protocol.AsError(r.Err)}
	}
	for _, r := range out.Results {
		if r.Error != nil {
			out.Failed++
		}
	}
	return answered(out, nil)
}

func (e *Envelope) message() (client.Message, error) {
	none := client.Message{}
	to := client.Topic(e.Topic)
	switch {
	case e.Topic != "" && e.Execution+e.Route != "":
		return none, protocol.Errorf(protocol.CodeInvalidArgs, "a message goes to an execution and a route, or to a topic: give one of these")
	case e.Topic == "":
		to = client.Queue(e.Execution, e.Route)
	}
	if e.Payload != "" && len(e.PayloadBase64) > 0 {
		return none, protocol.Errorf(protocol.CodeInvalidArgs, "a message has a payload or a payload_base64: give one of them")
	}
	data := e.PayloadBase64
	if len(data) == 0 {
		data = []byte(e.Payload)
	}
	return client.Message{
		To: to, Data: data, Headers: e.Headers, DedupID: e.DedupID, Delay: delay(e.DelayMs), DeliverAt: e.DeliverAt,
		Group: e.Group, Priority: e.Priority,
	}, nil
}
