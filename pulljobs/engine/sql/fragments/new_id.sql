-- Expression that makes an id, as the default of id columns does; in floating point, because extract() returns a numeric.
((((date_part('epoch', clock_timestamp()) * 1000)::bigint - ${epoch_milliseconds}) << 22) | nextval('pulljobs_id'))
