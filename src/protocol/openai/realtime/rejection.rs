//! Why the session did not carry out a command, in the codes that clients
//! switch on.

use crate::error::Kind;
use crate::protocol::openai::error::ApiError;
use crate::session::event::{Rejection, RejectionCode};

/// Which client event a command came from. It travels with the command's tag,
/// because some codes name the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `session.update`
    Update,
    /// `input_audio_buffer.append`
    Append,
    /// `input_audio_buffer.commit`
    Commit,
    /// `input_audio_buffer.clear`
    Clear,
    /// `conversation.item.create`
    Create,
    /// `conversation.item.retrieve`
    Retrieve,
    /// `conversation.item.truncate`
    Truncate,
    /// `conversation.item.delete`
    Delete,
    /// `response.create`
    Respond,
    /// `response.cancel`
    Cancel,
    /// `output_audio_buffer.clear`
    ClearOutput,
}

const NAMES: [(&str, Verb); 11] = [
    ("update", Verb::Update),
    ("append", Verb::Append),
    ("commit", Verb::Commit),
    ("clear", Verb::Clear),
    ("create", Verb::Create),
    ("retrieve", Verb::Retrieve),
    ("truncate", Verb::Truncate),
    ("delete", Verb::Delete),
    ("respond", Verb::Respond),
    ("cancel", Verb::Cancel),
    ("clear_output", Verb::ClearOutput),
];

impl Verb {
    /// The tag of a command: the verb and, after a colon, the client's event id.
    pub fn tag(self, event_id: Option<&str>) -> String {
        let name = NAMES.iter().find(|(_, verb)| *verb == self).map_or("", |(name, _)| *name);
        event_id.map_or_else(|| name.to_owned(), |id| format!("{name}:{id}"))
    }

    /// The verb and the client's event id of a tag.
    pub fn of_tag(tag: &str) -> (Option<Self>, Option<&str>) {
        let (name, id) = tag.split_once(':').map_or((tag, None), |(name, id)| (name, Some(id)));
        (NAMES.iter().find(|(known, _)| *known == name).map(|(_, verb)| *verb), id)
    }
}

/// The error, what was refused, and the client's event id.
pub fn error(rejection: &Rejection) -> (ApiError, Option<Verb>, Option<&str>) {
    let (verb, event_id) = rejection.tag.as_deref().map_or((None, None), Verb::of_tag);
    let (kind, code) = match rejection.code {
        RejectionCode::ResponseCancelNotActive => (Kind::Client, "response_cancel_not_active"),
        RejectionCode::ActiveResponse => (Kind::Client, "conversation_already_has_active_response"),
        RejectionCode::CommitEmpty => (Kind::Client, "input_audio_buffer_commit_empty"),
        RejectionCode::DuplicateItem => (Kind::Client, "item_create_duplicate_item_id"),
        RejectionCode::ItemNotFound => (
            Kind::Client,
            match verb {
                Some(Verb::Create) => "item_create_invalid_previous_item_id",
                Some(Verb::Retrieve) => "item_retrieve_invalid_item_id",
                Some(Verb::Truncate) => "item_truncate_invalid_item_id",
                Some(Verb::Delete) => "item_delete_invalid_item_id",
                _ => "item_not_found",
            },
        ),
        RejectionCode::InvalidValue => (Kind::Client, "invalid_value"),
        RejectionCode::Upstream => (Kind::Upstream, "server_error"),
        RejectionCode::Capacity => (Kind::Capacity, "rate_limit_exceeded"),
    };
    let message = match rejection.code {
        // Some clients know this one by how it begins.
        RejectionCode::ResponseCancelNotActive if !rejection.message.starts_with("Cancellation failed") => {
            format!("Cancellation failed: {}", rejection.message)
        }
        _ => rejection.message.clone(),
    };
    (ApiError { kind, code: Some(code), message, param: rejection.param.clone() }, verb, event_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_gives_back_what_it_was_made_of() {
        for (_, verb) in NAMES {
            for id in [None, Some(""), Some("event_1"), Some("a:b")] {
                assert_eq!(Verb::of_tag(&verb.tag(id)), (Some(verb), id));
            }
        }
    }

    #[test]
    fn codes_name_the_event_that_failed() {
        let rejection = |verb: Verb, code| Rejection {
            tag: Some(verb.tag(Some("mine"))),
            code,
            message: "no".to_owned(),
            param: None,
        };
        for (verb, code, wanted) in [
            (Verb::Delete, RejectionCode::ItemNotFound, "item_delete_invalid_item_id"),
            (Verb::Truncate, RejectionCode::ItemNotFound, "item_truncate_invalid_item_id"),
            (Verb::Retrieve, RejectionCode::ItemNotFound, "item_retrieve_invalid_item_id"),
            (Verb::Respond, RejectionCode::ActiveResponse, "conversation_already_has_active_response"),
            (Verb::Commit, RejectionCode::CommitEmpty, "input_audio_buffer_commit_empty"),
            (Verb::Create, RejectionCode::DuplicateItem, "item_create_duplicate_item_id"),
        ] {
            let rejection = rejection(verb, code);
            let (error, _, id) = error(&rejection);
            assert_eq!((error.code, id), (Some(wanted), Some("mine")));
        }
        let rejection = rejection(Verb::Cancel, RejectionCode::ResponseCancelNotActive);
        assert!(error(&rejection).0.message.starts_with("Cancellation failed"));
    }
}
