//! Where the server's sessions come from.

use std::pin::Pin;

use super::pump::Ends;
use crate::protocol::openai::error::ApiError;
use crate::session::manager::{Manager, SessionError};
use crate::session::settings::Settings;

/// Opens sessions. The server knows no more of them than this, so its tests
/// can put something countable behind real sockets.
pub trait Door: Send + Sync + 'static {
    /// Settings of a session for which nothing was asked.
    fn defaults(&self) -> Settings;

    /// Name of the language model, shown where a client names none.
    fn model(&self) -> String;

    /// Begins a session. Dropping its ends ends it.
    ///
    /// # Errors
    /// When there is no room, or a part cannot be had.
    fn open(&self, settings: Settings) -> Result<Ends, ApiError>;

    /// Takes no more sessions; ready when those that run have finished what
    /// they are saying, or their time is over.
    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl Door for Manager {
    fn defaults(&self) -> Settings {
        self.default_settings()
    }

    fn model(&self) -> String {
        self.parts().generator.model().to_owned()
    }

    fn open(&self, settings: Settings) -> Result<Ends, ApiError> {
        let handle = Self::open(self, settings).map_err(|error| ApiError {
            code: Some(match error {
                SessionError::Full(_) => "session_limit_exceeded",
                SessionError::Draining => "server_draining",
                SessionError::Part(_) => "server_error",
            }),
            ..ApiError::from_module(&error)
        })?;
        Ok(Ends { commands: handle.commands, events: handle.events })
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Self::drain(self))
    }
}
