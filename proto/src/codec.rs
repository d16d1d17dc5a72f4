//! Codec of messages: prost's encoding, with buffers that begin small.
//!
//! Every stream holds a buffer for each direction for as long as it lives. An agent sends some twenty bytes every ten
//! seconds. Buffers of eight kilobytes in both directions were a sixth of what its connection took. A larger message
//! makes its buffer grow.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// The initial size of a buffer.
const FIRST_BYTES: usize = 512;
/// The bytes that are gathered before they are passed on, as in the transport library.
const YIELD_BYTES: usize = 32 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct LeanCodec<T, U>(PhantomData<(T, U)>);

// === impl LeanCodec ===

impl<T, U> Default for LeanCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for LeanCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(settings())
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(FIRST_BYTES, YIELD_BYTES)
}
