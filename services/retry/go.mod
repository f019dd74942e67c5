module github.com/waybill-mq/waybill/services/retry

go 1.26.0

require (
	github.com/waybill-mq/waybill/pkg v0.0.0
	pgregory.net/rapid v1.3.0
)

require github.com/google/uuid v1.6.0 // indirect

replace github.com/waybill-mq/waybill/pkg => ../../pkg

replace github.com/waybill-mq/waybill/internal => ../../internal
