//! `turn_detection` both ways.

use serde_json::{Value, json};

use super::fields::{Fault, Fields, missing};
use crate::session::settings::{Eagerness, TurnDetection};

const EAGERNESS: [(&str, Eagerness); 4] = [
    ("low", Eagerness::Low),
    ("medium", Eagerness::Medium),
    ("high", Eagerness::High),
    ("auto", Eagerness::Auto),
];

/// The API's defaults of `server_vad`.
pub const SERVER_VAD: TurnDetection = TurnDetection::Silence {
    threshold: 0.5,
    prefix_padding_ms: 300,
    silence_duration_ms: 500,
    idle_timeout_ms: None,
    create_response: true,
    interrupt_response: true,
};

/// The API's defaults of `semantic_vad`.
pub const SEMANTIC_VAD: TurnDetection =
    TurnDetection::Semantic { eagerness: Eagerness::Auto, create_response: true, interrupt_response: true };

/// Reads it over the present one: absent fields stay where the type stays.
pub fn read(value: &Value, path: &str, now: &TurnDetection) -> Result<TurnDetection, Fault> {
    if value.is_null() {
        return Ok(TurnDetection::Manual);
    }
    let fields = Fields::new(value, path)?;
    let silence = fields.choice("type", &[("server_vad", true), ("semantic_vad", false)])?;
    let mut turn = match (silence, now) {
        (Some(true) | None, TurnDetection::Silence { .. }) => now.clone(),
        (Some(false) | None, TurnDetection::Semantic { .. }) => now.clone(),
        (Some(true), _) => SERVER_VAD,
        (Some(false), _) => SEMANTIC_VAD,
        (None, TurnDetection::Manual) => return Err(missing(&fields.path("type"))),
    };
    let set = |slot: &mut bool, key: &str| -> Result<(), Fault> {
        *slot = fields.boolean(key)?.unwrap_or(*slot);
        Ok(())
    };
    match &mut turn {
        TurnDetection::Silence {
            threshold,
            prefix_padding_ms,
            silence_duration_ms,
            idle_timeout_ms,
            create_response,
            interrupt_response,
        } => {
            *threshold = fields.number("threshold", 0.0..=1.0)?.map_or(*threshold, |value| value as f32);
            *prefix_padding_ms =
                fields.integer("prefix_padding_ms", 0..=10_000)?.unwrap_or(*prefix_padding_ms);
            *silence_duration_ms =
                fields.integer("silence_duration_ms", 0..=30_000)?.unwrap_or(*silence_duration_ms);
            if fields.present("idle_timeout_ms").is_some() {
                *idle_timeout_ms = fields.integer("idle_timeout_ms", 5_000..=30_000)?;
            }
            set(create_response, "create_response")?;
            set(interrupt_response, "interrupt_response")?;
        }
        TurnDetection::Semantic { eagerness, create_response, interrupt_response } => {
            *eagerness = fields.choice("eagerness", &EAGERNESS)?.unwrap_or(*eagerness);
            set(create_response, "create_response")?;
            set(interrupt_response, "interrupt_response")?;
        }
        TurnDetection::Manual => {}
    }
    Ok(turn)
}

/// As the session object shows it, every effective value named.
pub fn object(turn: &TurnDetection) -> Value {
    match turn {
        TurnDetection::Manual => Value::Null,
        TurnDetection::Silence {
            threshold,
            prefix_padding_ms,
            silence_duration_ms,
            idle_timeout_ms,
            create_response,
            interrupt_response,
        } => json!({
            "type": "server_vad",
            // Through text, so that 0.6 is shown as it was set and not as the nearest f32.
            "threshold": short(*threshold),
            "prefix_padding_ms": prefix_padding_ms,
            "silence_duration_ms": silence_duration_ms,
            "idle_timeout_ms": idle_timeout_ms,
            "create_response": create_response,
            "interrupt_response": interrupt_response,
        }),
        TurnDetection::Semantic { eagerness, create_response, interrupt_response } => json!({
            "type": "semantic_vad",
            "eagerness": EAGERNESS.iter().find(|(_, value)| value == eagerness).map(|(name, _)| *name),
            "create_response": create_response,
            "interrupt_response": interrupt_response,
        }),
    }
}

/// The shortest decimal that reads back as this `f32`.
pub fn short(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_merge_within_a_type_and_default_across() {
        let first = read(
            &json!({"type": "server_vad", "threshold": 0.6, "silence_duration_ms": 200}),
            "t",
            &SEMANTIC_VAD,
        )
        .expect("valid");
        let second =
            read(&json!({"type": "server_vad", "create_response": false}), "t", &first).expect("valid");
        let shown = object(&second);
        assert_eq!(shown["threshold"], json!(0.6));
        assert_eq!(shown["silence_duration_ms"], json!(200));
        assert_eq!(shown["create_response"], json!(false));
        assert_eq!(shown["interrupt_response"], json!(true));
        assert_eq!(shown["idle_timeout_ms"], Value::Null);
        let third = read(&json!({"type": "semantic_vad", "eagerness": "high"}), "t", &second).expect("valid");
        assert_eq!(object(&third)["create_response"], json!(true));
        assert_eq!(object(&third)["eagerness"], json!("high"));
        assert_eq!(read(&Value::Null, "t", &third), Ok(TurnDetection::Manual));
        let fault = read(&json!({"threshold": 0.5}), "t", &TurnDetection::Manual).expect_err("no type");
        assert_eq!(fault.code, Some("missing_required_parameter"));
    }

    #[test]
    fn the_idle_timeout_has_bounds_and_can_be_cleared() {
        let set =
            read(&json!({"type": "server_vad", "idle_timeout_ms": 6000}), "t", &SERVER_VAD).expect("valid");
        assert_eq!(object(&set)["idle_timeout_ms"], json!(6000));
        let cleared =
            read(&json!({"type": "server_vad", "idle_timeout_ms": null}), "t", &set).expect("valid");
        assert_eq!(object(&cleared)["idle_timeout_ms"], Value::Null);
        assert!(read(&json!({"type": "server_vad", "idle_timeout_ms": 100}), "t", &SERVER_VAD).is_err());
    }
}
